-- What the scripts of queues and records share. A queue q is the names of four keys: its stream, its delayed messages, its
-- dead letters and their index. arg returns the next argument, now is in µs since 1970.
local GROUP = 'semel'

-- mine: the entry is pending, with this consumer, and was delivered to it as often as the receipt says.
local function mine(q, id, consumer, count)
  local found = redis.pcall('XPENDING', q[1], GROUP, id, id, 1, consumer)
  if found.err then
    return not string.find(found.err, 'NOGROUP', 1, true) and found
  end
  return found[1] ~= nil and found[1][4] == count
end

local function close_dead_letter(q, id)
  redis.call('HDEL', q[3], 'h' .. id, 'm' .. id)
  redis.call('ZREM', q[4], id)
end

-- Dead letters are scored by when they were written, and no two have the same score.
local function put_dead_letter(q, now, id, head, message)
  if redis.call('ZSCORE', q[4], id) then return end
  local last = redis.call('ZREVRANGE', q[4], 0, 0, 'WITHSCORES')[2]
  redis.call('HSET', q[3], 'h' .. id, head, 'm' .. id, message)
  redis.call('ZADD', q[4], string.format('%.0f', math.max(now, (tonumber(last) or 0) + 1)), id)
end

local function delay(q, now, after, fields)
  redis.call('ZADD', q[2], string.format('%.0f', now + after), cmsgpack.pack(fields))
end

-- again: the message gets a new entry, now or after some µs. It keeps its ID, when it was sent, and its count. Lua passes at
-- most some 8,000 arguments: an entry with more fields and values keeps its place, and is delivered again as one that has
-- expired, now or when the visibility has passed. Then again returns true.
local function again(q, now, id, after, message_id, count)
  local fields = (redis.call('XRANGE', q[1], id, id)[1] or {})[2]
  if not fields then return end -- somebody trimmed the stream
  if #fields > 7900 then
    redis.call('XCLAIM', q[1], GROUP, 'semel-again', 0, id, 'IDLE', after > 0 and 0 or 31536000000, 'JUSTID')
    return true
  end
  local out, has = {id}, {}
  for i = 1, #fields, 2 do
    has[fields[i]] = true
    if fields[i] ~= 'semel-count' then
      out[#out + 1], out[#out + 2] = fields[i], fields[i + 1]
    end
  end
  for name, value in pairs({['semel-count'] = count, ['semel-id'] = message_id, ['semel-sent'] = string.match(id, '%d+')}) do
    if not has[name] or name == 'semel-count' then
      out[#out + 1], out[#out + 2] = name, value
    end
  end
  if after > 0 then return delay(q, now, after, out) end
  redis.call('XADD', q[1], '*', unpack(out, 2))
end

-- Entries that are handled, by stream. They are removed together, at the end of a script.
local handled, gone = {}, {}
local function remove_handled()
  for stream, ids in pairs(handled) do
    redis.call('XACK', stream, GROUP, unpack(ids))
    redis.call('XDEL', stream, unpack(ids))
  end
end

-- settle ends a delivery: 1, or 0 when it is lost. Dead letters are written and closed in any case: that follows from the record.
-- What is delivered again is a new entry, so that its old receipts are lost.
local function settle(q, arg, now)
  local verb, id, consumer, count, close = arg(), arg(), arg(), tonumber(arg()), arg()
  local more = {}
  if verb ~= 'ack' then
    for i = 1, 3 do more[i] = arg() end
  end
  if close ~= '' then close_dead_letter(q, close) end
  if verb == 'dead' then put_dead_letter(q, now, more[1], more[2], more[3]) end
  local held = not gone[q[1] .. id] and mine(q, id, consumer, count)
  if held ~= true then return held or 0 end
  if verb == 'again' and again(q, now, id, tonumber(more[1]), more[2], more[3]) then return 1 end
  handled[q[1]], gone[q[1] .. id] = handled[q[1]] or {}, true
  table.insert(handled[q[1]], id)
  return 1
end
