-- Closes the bucket KEYS[1] for ARGV[1] microseconds, see take.lua. A freeze that ends later stands.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local frozen = now + tonumber(ARGV[1])
local stored = redis.call('HMGET', KEYS[1], 'full', 'frozen')
if tonumber(stored[2] or 0) >= frozen then
  return 0
end
redis.call('HSET', KEYS[1], 'frozen', string.format('%.0f', frozen))
local last = math.max(tonumber(stored[1] or now), frozen)
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil((last - now) / 1000)))
return 1
