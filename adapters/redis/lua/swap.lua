-- KEYS: floor, index, and for each record its name and that of its side. ARGV: for each record how its bytes begin ('' =
-- there is none), the record afterwards ('' = none), its token, its score, the number of arguments that follow, and the
-- fields of its side with their values ('' = remove the field).
-- Returns now, floor, and for each record: 1 = written, else the record that is there, or nil.
local floor, a, out = lowest(KEYS[1]), 1, {}
for i = 3, #KEYS, 2 do
  local key, side = KEYS[i], KEYS[i + 1]
  local head, after, token, score, fields = ARGV[a], ARGV[a + 1], tonumber(ARGV[a + 2]), ARGV[a + 3], tonumber(ARGV[a + 4])
  local found = read(key)
  local same = found == false and head == '' or type(found) == 'string' and head ~= '' and sub(found, 1, #head) == head
  if same and after == '' then
    redis.call('ZREM', KEYS[2], member(key))
    redis.call('DEL', key, side)
  elseif same then
    if token > floor then
      raise(KEYS[1], token)
      floor = token
    end
    redis.call('ZADD', KEYS[2], score, member(key))
    if sub(after, 2, 2) == '\6' and sub(head, 2, 2) ~= '\6' then -- a record that expires keeps nothing beside it
      redis.call('DEL', side)
    end
    for f = a + 5, a + 4 + fields, 2 do
      if ARGV[f + 1] == '' then
        redis.call('HDEL', side, ARGV[f])
      else
        redis.call('HSET', side, ARGV[f], ARGV[f + 1])
      end
    end
    redis.call('SET', key, after)
  end
  out[#out + 1] = same and 1 or found
  a = a + 5 + fields
end
return {now, floor, unpack(out, 1, (#KEYS - 2) / 2)}
