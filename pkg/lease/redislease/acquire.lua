-- Takes the lease KEYS[1] for ARGV[3] ms. ARGV[1] is the generation of the value ARGV[2].
-- ARGV[4] = 1: the same value and a router's reservation of the same generation do not stand in the way.
-- Returns {1}, or {0, stored value}.
local stored = redis.call('GET', KEYS[1])
if stored then
  local gen, holder = string.match(stored, '^(%d+);[^;]*;(.*)$')
  local yields = not gen or tonumber(gen) < tonumber(ARGV[1])
  if not yields and ARGV[4] == '1' then
    local reserved = tonumber(gen) == tonumber(ARGV[1]) and string.sub(holder, 1, 7) == 'router/'
    yields = reserved or stored == ARGV[2]
  end
  if not yields then
    return {0, stored}
  end
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return {1}
