package partition

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"

	"github.com/hermes-runtime/hermes/pkg/session"
)

// Preferred returns the router that should own a partition; "" if there is none. It depends on the set of routers only,
// so that all of them agree.
func Preferred(routers []string, partition int) string {
	best, top := "", uint64(0)
	for _, id := range routers {
		w := weight(id, partition)
		if best == "" || w > top || w == top && id > best {
			best, top = id, w
		}
	}
	return best
}

// Wanted returns the partitions that routerID should own, in ascending order.
func Wanted(routers []string, routerID string) []int {
	var wanted []int
	for p := range session.Partitions {
		if Preferred(routers, p) == routerID {
			wanted = append(wanted, p)
		}
	}
	return wanted
}

// All returns every partition.
func All() []int {
	all := make([]int, session.Partitions)
	for p := range all {
		all[p] = p
	}
	return all
}

// weight must never change: routers of two versions would want the same partitions.
func weight(routerID string, partition int) uint64 {
	sum := sha256.Sum256([]byte(routerID + "\x00" + strconv.Itoa(partition)))
	return binary.BigEndian.Uint64(sum[:8])
}
