-- KEYS: those of the queue. ARGV: consumer, the most messages, visibility in ms, the cursor of the search for expired
-- deliveries ('' = none now), after how many ms a silent consumer is removed (0 = none now).
-- Returns the cursor afterwards, in how many µs a delayed message is due (-1 = there is none), the last entry of the stream,
-- how many messages were trimmed while they were in flight, and for each delivery its entry, fields and count. The last
-- entry is known only if there is no delivery.
local stream, delayed, consumer, most = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- A server that has lost its data has no group. The group begins with the first entry: what was handled is deleted.
local function call(...)
  local r = redis.pcall(...)
  if type(r) ~= 'table' or not r.err then return r end
  if not string.find(r.err, 'NOGROUP', 1, true) then return error(r) end -- as it is: the client reads how it begins
  redis.call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
  return redis.call(...)
end

local function value(list, name)
  for i = 1, #list, 2 do
    if list[i] == name then return list[i + 1] end
  end
end

for _, packed in ipairs(redis.call('ZRANGEBYSCORE', delayed, '-inf', string.format('%.0f', now), 'LIMIT', 0, most)) do
  redis.call('XADD', stream, '*', unpack(cmsgpack.unpack(packed), 2))
  redis.call('ZREM', delayed, packed)
end

local cursor, trimmed, out = ARGV[4], 0, {}
if cursor ~= '' then
  local found = call('XAUTOCLAIM', stream, GROUP, consumer, ARGV[3], cursor, 'COUNT', most)
  cursor, trimmed = found[1], #found[3]
  for _, entry in ipairs(found[2]) do
    local pending = redis.call('XPENDING', stream, GROUP, entry[1], entry[1], 1)[1]
    out[#out + 1] = {entry[1], entry[2], pending[4]}
  end
end
if #out < most then
  local found = call('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', most - #out, 'STREAMS', stream, '>')
  for _, entry in ipairs(found and found[1][2] or {}) do
    out[#out + 1] = {entry[1], entry[2], 1}
  end
end
local silent = tonumber(ARGV[5])
if silent > 0 then
  for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', stream, GROUP)) do
    local name = value(c, 'name')
    if string.sub(name, 1, 6) == 'semel-' and value(c, 'pending') == 0 and value(c, 'idle') > silent then
      redis.call('XGROUP', 'DELCONSUMER', stream, GROUP, name)
    end
  end
end

local due, last = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2], ''
due = due and math.max(tonumber(due) - now, 0) or -1
if #out == 0 then
  last = value(redis.call('XINFO', 'STREAM', stream), 'last-generated-id')
end
return {cursor, due, last, trimmed, unpack(out)}
