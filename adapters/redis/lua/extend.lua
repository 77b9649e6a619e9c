-- KEYS: floor, index, records. ARGV: the lease in µs, and for each record generation, token and nonce of the attempt.
-- Returns now, 0, and for each record: 1 = extended, else the record that is there, or nil.
local lease = tonumber(ARGV[1])
local bytes = pack(now) .. pack(lease) .. pack(now + lease)
local out, scores, records = {}, {}, {}
for i = 3, #KEYS do
  local key = KEYS[i]
  local found = read(key)
  if type(found) == 'string' and sub(found, 1, 2) == '\1\1' and sub(found, 5, 32) == ARGV[i - 1] then
    local beat = struct.pack('>I4', struct.unpack('>I4', sub(found, 61, 64)) + 1)
    records[#records + 1] = key
    records[#records + 1] = sub(found, 1, 36) .. bytes .. beat .. sub(found, 65)
    scores[#scores + 1] = open_score(now + lease)
    scores[#scores + 1] = member(key)
    found = 1
  end
  out[i - 2] = found
end
write(KEYS[2], scores, records)
return {now, 0, unpack(out, 1, #KEYS - 2)}
