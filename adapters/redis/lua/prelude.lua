-- Every script begins with this. Offsets are those of layout.go, counted from 1. No script parses a record: it compares
-- bytes at fixed offsets, and replaces them.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local sub, pack = string.sub, function(n) return struct.pack('>I8', n) end

-- Members of the index are the hashes at the end of the records' names. A record in progress is scored by the end of its
-- lease minus OPEN, so these lie below 0, before everything that has a retention.
local OPEN = 4000000000000000
local function member(key) return sub(key, -16) end
local function open_score(lease_until) return math.min(lease_until - OPEN, -1) end

-- A value of another type is returned as an error in its place: it fails one item, and nothing is written to it.
local function read(key) return redis.pcall('GET', key) end

-- Index before records: what fails on a key of another type has written no record yet.
local function write(index, scores, records)
  if #records > 0 then
    redis.call('ZADD', index, unpack(scores))
    redis.call('MSET', unpack(records))
  end
end

-- Tokens: a floor that is stored and only grows. The clock, in µs, is a lower bound for one that a failover has lost.
local function lowest(key)
  return math.max(tonumber(redis.call('GET', key) or '0'), now)
end
local function raise(key, token)
  if token >= 9007199254740992 then
    return error('semel: token ' .. string.format('%.0f', token) .. ' is out of range: the key ' .. key .. ' is damaged')
  end
  redis.call('SET', key, string.format('%.0f', token))
end
