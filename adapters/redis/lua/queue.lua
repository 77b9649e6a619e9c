-- KEYS: those of the queue. ARGV: for each item its verb with what the verb needs. Returns a value for each item.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local at = 0
local function arg() at = at + 1 return ARGV[at] end

local verbs = {}

function verbs.settle() return settle(KEYS, arg, now) end

-- extend: entry, consumer, count. The time for which the entry is pending begins again.
function verbs.extend()
  local id, consumer, count = arg(), arg(), tonumber(arg())
  local held = mine(KEYS, id, consumer, count)
  if held ~= true then return held or 0 end
  return #redis.call('XCLAIM', KEYS[1], GROUP, consumer, 0, id, 'JUSTID')
end

-- delay: µs, the number of values that follow, something that no other message has, and the fields of a message.
function verbs.delay()
  local after, n, fields = tonumber(arg()), tonumber(arg()), {}
  for i = 1, n do fields[i] = arg() end
  delay(KEYS, now, after, fields)
  return 1
end

function verbs.put()
  local id, head, message = arg(), arg(), arg()
  put_dead_letter(KEYS, now, id, head, message)
  return 1
end

function verbs.close() close_dead_letter(KEYS, arg()) return 1 end

-- purge: returns how many messages there were. Without its group a stream has nothing pending.
function verbs.purge()
  local n = redis.call('XTRIM', KEYS[1], 'MAXLEN', 0) + redis.call('ZCARD', KEYS[2])
  redis.call('DEL', KEYS[2])
  redis.pcall('XGROUP', 'DESTROY', KEYS[1], GROUP)
  redis.call('XGROUP', 'CREATE', KEYS[1], GROUP, '0', 'MKSTREAM')
  return n
end

local out = {}
while at < #ARGV do
  out[#out + 1] = verbs[arg()]()
end
remove_handled()
return out
