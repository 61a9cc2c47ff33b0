-- Extends KEYS[1] by ARGV[2] ms if its value is ARGV[1]. Returns 1, 0 if another value is stored, -1 if none is: a
-- forgotten lease is never revived.
local stored = redis.call('GET', KEYS[1])
if not stored then
  return -1
end
if stored ~= ARGV[1] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
