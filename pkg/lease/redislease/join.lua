-- Announces the member ARGV[1] in the sorted set KEYS[1], whose scores are times of this server in ms, and forgets those
-- not heard of for ARGV[2] ms. Returns all members.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. string.format('%d', now - ARGV[2]))
return redis.call('ZRANGE', KEYS[1], 0, -1)
