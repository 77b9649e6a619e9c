-- KEYS: floor, index, records. ARGV: for each record what to write when there is none, '' = only read.
-- Returns now, floor, and for each record: the token of the record that was written, the record that is there, or nil.
local floor = lowest(KEYS[1])
local token, out, scores, records = floor, {}, {}, {}
for i = 3, #KEYS do
  local key, fresh = KEYS[i], ARGV[i - 2]
  local found = read(key)
  if found == false and fresh ~= '' then
    local lease_until = now + struct.unpack('>I8', sub(fresh, 45, 52))
    token = token + 1
    found = token
    records[#records + 1] = key
    records[#records + 1] = sub(fresh, 1, 8) .. pack(token) .. sub(fresh, 17, 36) .. pack(now) .. sub(fresh, 45, 52) ..
      pack(lease_until) .. sub(fresh, 61, 80) .. pack(now) .. sub(fresh, 89)
    scores[#scores + 1] = open_score(lease_until)
    scores[#scores + 1] = member(key)
  end
  out[i - 2] = found
end
if token > floor then
  raise(KEYS[1], token)
end
write(KEYS[2], scores, records)
return {now, floor, unpack(out, 1, #KEYS - 2)}
