-- KEYS: floor, index, and for each duplicate the name of its record and that of its side. ARGV: the duplicates.
-- The newest 16 of a key are kept, in the fields d0 to d15 of its side; n counts all. Those without a record are ignored.
for i = 3, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    local n = redis.call('HINCRBY', KEYS[i + 1], 'n', 1)
    redis.call('HSET', KEYS[i + 1], 'd' .. n % 16, ARGV[(i - 1) / 2])
  end
end
return {now, 0}
