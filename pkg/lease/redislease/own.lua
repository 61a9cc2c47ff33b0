-- Takes or renews KEYS[1] for ARGV[1] for ARGV[2] ms. Returns 1 if it is its own now, else 0.
local stored = redis.call('GET', KEYS[1])
if stored and stored ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
