-- Takes a token from each of the buckets KEYS, or none from any. ARGV holds two numbers a bucket: the time in which it
-- gains a token, in microseconds, and how many it holds.
-- A bucket is a hash: full is the moment at which it is full again, frozen the one up to which nobody takes, in
-- microseconds of this server's time. An absent bucket is full.
-- Returns 0, or the microseconds to wait.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local wait = 0
local full, last = {}, {}
for i, key in ipairs(KEYS) do
  local interval, burst = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local stored = redis.call('HMGET', key, 'full', 'frozen')
  local frozen = tonumber(stored[2] or now)
  full[i] = math.max(tonumber(stored[1] or now), now) + interval
  last[i] = math.max(full[i], frozen)
  wait = math.max(wait, full[i] - now - interval * burst, frozen - now)
end
if wait > 0 then
  return math.ceil(wait)
end
for i, key in ipairs(KEYS) do
  redis.call('HSET', key, 'full', string.format('%.0f', full[i]))
  redis.call('PEXPIRE', key, string.format('%.0f', math.ceil((last[i] - now) / 1000)))
end
return 0
