-- KEYS: floor, index, records. ARGV: for each record generation, token and nonce of the attempt, the retention in µs, and
-- the tail (reason and result). '' instead of the attempt = only read.
-- Returns now, floor, and for each record: 1 = completed, else the record that is there, or nil. Records with versions are
-- left to the table.
local out, scores, records = {}, {}, {}
for i = 3, #KEYS do
  local key, a = KEYS[i], 3 * (i - 3)
  local found = read(key)
  local flags = type(found) == 'string' and sub(found, 3, 3)
  if (flags == '\0' or flags == '\2') and sub(found, 1, 2) == '\1\1' and sub(found, 5, 32) == ARGV[a + 1] then
    local retain = now + tonumber(ARGV[a + 2])
    local tail = struct.unpack('>I4', sub(found, 121, 124))
    records[#records + 1] = key
    records[#records + 1] = '\1\3\0' .. sub(found, 4, 36) .. pack(now) .. sub(found, 45, 96) .. pack(now) ..
      pack(retain) .. sub(found, 113, tail) .. ARGV[a + 3]
    scores[#scores + 1] = retain
    scores[#scores + 1] = member(key)
    found = 1
  end
  out[i - 2] = found
end
write(KEYS[2], scores, records)
return {now, lowest(KEYS[1]), unpack(out, 1, #KEYS - 2)}
