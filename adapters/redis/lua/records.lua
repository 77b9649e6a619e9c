-- KEYS: floor, index, failed and uncertain cases, and for each item the name of its record, for some verbs followed by that of
-- its side, and by those of a queue.
-- ARGV: for each item its verb with what the verb needs.
-- Returns now, floor, and for each item: a number when its write was made, else the record that is there, or nil.
-- Offsets are those of layout.go, counted from 1. Nothing here parses a record: it compares bytes at fixed offsets, and
-- replaces them.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local sub, pack, unpack_number = string.sub, function(n) return struct.pack('>I8', n) end, struct.unpack

-- Members of the index are the hashes at the end of the records' names. A record in progress is scored by the end of its
-- lease minus OPEN, so these lie below 0, before everything that has a retention.
local OPEN = 4000000000000000
local function member(key) return sub(key, -16) end
local function open_score(lease_until) return math.min(lease_until - OPEN, -1) end

-- Tokens: a floor that is stored and only grows. The clock, in µs, is a lower bound for one that a failover has lost.
local floor = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now)
local token = floor
local function raise(to)
  if to >= 9007199254740992 then
    error('semel: token ' .. string.format('%.0f', to) .. ' is out of range: the key ' .. KEYS[1] .. ' is damaged')
  end
  token = math.max(token, to)
end

local key_at, arg_at = 4, 0
local function next_key() key_at = key_at + 1 return KEYS[key_at] end
local function next_arg() arg_at = arg_at + 1 return ARGV[arg_at] end

-- Verbs collect their writes, which are made at the end. sides are functions that write the sides, acks are functions that
-- settle deliveries.
local scores, records, sides, acks = {}, {}, {}, {}
local function put(key, score, record)
  scores[#scores + 1] = score
  scores[#scores + 1] = member(key)
  records[#records + 1] = key
  records[#records + 1] = record
end

-- mine: the record is in progress by the attempt with this generation, token and nonce.
local function mine(found, hold)
  return type(found) == 'string' and sub(found, 1, 2) == '\1\1' and sub(found, 5, 32) == hold
end

local verbs = {}

-- A value of another type is returned as an error in its place: it fails one item, and nothing is written to it.
function verbs.read(key) return redis.pcall('GET', key) end

-- claim: what to write when there is no record. Returns its token.
function verbs.claim(key)
  local found = verbs.read(key)
  local fresh = next_arg()
  if found ~= false then return found end
  raise(token + 1)
  local lease_until = now + unpack_number('>I8', sub(fresh, 45, 52))
  put(key, open_score(lease_until), sub(fresh, 1, 8) .. pack(token) .. sub(fresh, 17, 36) .. pack(now) .. sub(fresh, 45, 52) ..
    pack(lease_until) .. sub(fresh, 61, 80) .. pack(now) .. sub(fresh, 89))
  return token
end

-- extend: the attempt, and the lease in µs.
function verbs.extend(key)
  local found = verbs.read(key)
  local hold, lease = next_arg(), tonumber(next_arg())
  if not mine(found, hold) then return found end
  local beat = struct.pack('>I4', unpack_number('>I4', sub(found, 61, 64)) + 1)
  put(key, open_score(now + lease), sub(found, 1, 36) .. pack(now) .. pack(lease) .. pack(now + lease) .. beat .. sub(found, 65))
  return 1
end

-- complete: the attempt, the retention in µs, and the tail (reason and result). Records with versions are left to the table.
function verbs.complete(key)
  local found = verbs.read(key)
  local hold, retain, tail = next_arg(), now + tonumber(next_arg()), next_arg()
  local flags = mine(found, hold) and sub(found, 3, 3)
  if flags ~= '\0' and flags ~= '\2' then return found end
  put(key, retain, '\1\3\0' .. sub(found, 4, 36) .. pack(now) .. sub(found, 45, 96) .. pack(now) .. pack(retain) ..
    sub(found, 113, unpack_number('>I4', sub(found, 121, 124))) .. tail)
  return 1
end

-- Cases are scored by the time since which they need a person; score '' = the record is none.
local function set_case(key, head, after, score)
  local was = sub(head, 2, 2)
  if was == '\4' or was == '\5' then
    redis.call('ZREM', KEYS[3], member(key))
    redis.call('ZREM', KEYS[4], member(key))
  end
  if score ~= '' then
    redis.call('ZADD', sub(after, 2, 2) == '\4' and KEYS[3] or KEYS[4], score, member(key))
  end
end

-- swap: how the record's bytes begin ('' = there is none), the record afterwards ('' = none), its token, its score, that of
-- its case, the number of arguments that follow, and the fields of its side with their values ('' = remove the field).
function verbs.swap(key)
  local found = verbs.read(key)
  local side, head, after, drawn, score, case = next_key(), next_arg(), next_arg(), tonumber(next_arg()), next_arg(), next_arg()
  local first = arg_at + 2
  arg_at = first - 1 + tonumber(ARGV[first - 1])
  if head == '' and found ~= false or head ~= '' and (type(found) ~= 'string' or sub(found, 1, #head) ~= head) then return found end
  if after == '' then
    set_case(key, head, after, case)
    redis.call('ZREM', KEYS[2], member(key))
    redis.call('DEL', key, side)
    return 1
  end
  raise(drawn)
  local last = arg_at
  sides[#sides + 1] = function()
    set_case(key, head, after, case)
    if sub(after, 2, 2) == '\6' and sub(head, 2, 2) ~= '\6' then -- a record that expires keeps no side
      redis.call('DEL', side)
    end
    for f = first, last, 2 do
      if ARGV[f + 1] == '' then
        redis.call('HDEL', side, ARGV[f])
      else
        redis.call('HSET', side, ARGV[f], ARGV[f + 1])
      end
    end
  end
  put(key, score, after)
  return 1
end

-- duplicate: the duplicate. The newest 16 of a key are kept, in the fields d0 to d15 of its side; n counts all. One without a
-- record is ignored.
function verbs.duplicate(key)
  local side, duplicate = next_key(), next_arg()
  if redis.call('EXISTS', key) == 1 then
    redis.call('HSET', side, 'd' .. redis.call('HINCRBY', side, 'n', 1) % 16, duplicate)
  end
  return 1
end

-- joined: another verb, the names of a queue, the number of arguments that follow, and those of settle. The delivery is settled
-- if the verb writes the record.
function verbs.joined(key)
  local result = verbs[next_arg()](key)
  local q = {next_key(), next_key(), next_key(), next_key()}
  local n, settlement, at = tonumber(next_arg()), {}, 0
  for i = 1, n do settlement[i] = next_arg() end
  if type(result) == 'number' then
    acks[#acks + 1] = function() settle(q, function() at = at + 1 return settlement[at] end, now) end
  end
  return result
end

local out = {}
while key_at < #KEYS do
  out[#out + 1] = verbs[next_arg()](next_key())
end

-- Records come behind what can fail on a key of another type. Deliveries come last: one that remains is settled by its record.
if token > floor then
  redis.call('SET', KEYS[1], string.format('%.0f', token))
end
if #records > 0 then
  redis.call('ZADD', KEYS[2], unpack(scores))
  for _, write in ipairs(sides) do write() end
  redis.call('MSET', unpack(records))
  for _, ack in ipairs(acks) do ack() end
  remove_handled()
end
return {now, floor, unpack(out)}
