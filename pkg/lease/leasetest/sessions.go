package leasetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/lease"
)

func sessionTests() map[string]func(t *testing.T, b Backend) {
	return map[string]func(t *testing.T, b Backend){
		"Acquire":                         acquireRules,
		"Reserve":                         reserveRules,
		"Renew":                           renewRules,
		"Release":                         releaseRules,
		"AHeldLeaseEndsAfterItsTTL":       heldExpires,
		"AReservationEndsAfterItsTTL":     reservationExpires,
		"AcquireTurnsAReservationIntoTTL": reservationTakenOver,
		"RenewExtendsTheLease":            renewExtends,
		"AcquiringAgainExtendsTheLease":   acquireExtends,
		"AForgottenLeaseIsNeverRevived":   forgottenStaysAbsent,
		"LookupReturnsWhatIsStored":       lookupStored,
		"BatchesKeepTheirOrder":           batchesKeepOrder,
		"AnEmptyBatchIsNothing":           emptyBatch,
		"SessionsAreIndependent":          sessionsIndependent,
	}
}

// rule is one row of the rules: what is stored, what is asked for, whether it is granted.
type rule struct {
	stored *lease.Lease
	ask    lease.Lease
	ok     bool
}

func checkRules(t *testing.T, b Backend, rules map[string]rule, ask func(*testing.T, Backend, lease.Lease) lease.Grant) {
	t.Helper()
	for name, r := range rules {
		b.Forget()
		if r.stored != nil {
			require.True(t, put(t, b, *r.stored).OK, name)
		}
		got := ask(t, b, r.ask)
		if r.ok {
			require.Equal(t, lease.Grant{OK: true}, got, name)
			require.Equal(t, &r.ask, lookup(t, b), name)
			continue
		}
		require.Equal(t, lease.Grant{Held: *r.stored}, got, name)
		require.Equal(t, r.stored, lookup(t, b), name)
	}
}

func put(t *testing.T, b Backend, l lease.Lease) lease.Grant {
	t.Helper()
	if l.Reserved() {
		return reserve(t, b, l)
	}
	return acquire(t, b, l)
}

func acquireRules(t *testing.T, b Backend) {
	checkRules(t, b, map[string]rule{
		"free":                                 {nil, held(5, "w1/n1"), true},
		"lower generation held":                {new(held(4, "w2/n2")), held(5, "w1/n1"), true},
		"lower generation reserved":            {new(reserved(4, "r1")), held(5, "w1/n1"), true},
		"lower generation as text":             {new(held(9, "w2/n2")), held(10, "w1/n1"), true},
		"same generation reserved":             {new(reserved(5, "r1")), held(5, "w1/n1"), true},
		"same value":                           {new(held(5, "w1/n1")), held(5, "w1/n1"), true},
		"same generation held by another":      {new(held(5, "w2/n2")), held(5, "w1/n1"), false},
		"same worker with another nonce":       {new(held(5, "w1/n2")), held(5, "w1/n1"), false},
		"higher generation held":               {new(held(6, "w2/n2")), held(5, "w1/n1"), false},
		"higher generation reserved":           {new(reserved(6, "r1")), held(5, "w1/n1"), false},
		"higher generation as text":            {new(held(10, "w2/n2")), held(9, "w1/n1"), false},
		"worker that is called like a router/": {new(held(5, "routers/1")), held(5, "w1/n1"), false},
	}, acquire)
}

func reserveRules(t *testing.T, b Backend) {
	checkRules(t, b, map[string]rule{
		"free":                               {nil, reserved(5, "r1"), true},
		"lower generation held":              {new(held(4, "w1/n1")), reserved(5, "r1"), true},
		"lower generation reserved":          {new(reserved(4, "r2")), reserved(5, "r1"), true},
		"same generation held":               {new(held(5, "w1/n1")), reserved(5, "r1"), false},
		"same generation reserved":           {new(reserved(5, "r2")), reserved(5, "r1"), false},
		"same generation reserved by itself": {new(reserved(5, "r1")), reserved(5, "r1"), false},
		"higher generation held":             {new(held(6, "w1/n1")), reserved(5, "r1"), false},
		"higher generation reserved":         {new(reserved(6, "r2")), reserved(5, "r1"), false},
	}, reserve)
}

func renewRules(t *testing.T, b Backend) {
	mine := held(5, "w1/n1")
	for name, c := range map[string]struct {
		stored *lease.Lease
		want   lease.Renewed
	}{
		"same value":        {&mine, lease.Held},
		"absent":            {nil, lease.Absent},
		"higher generation": {new(held(6, "w2/n2")), lease.Lost},
		"other nonce":       {new(held(5, "w1/n2")), lease.Lost},
		"lower generation":  {new(held(4, "w1/n1")), lease.Lost},
	} {
		b.Forget()
		if c.stored != nil {
			require.True(t, acquire(t, b, *c.stored).OK, name)
		}
		require.Equal(t, c.want, renew(t, b, mine), name)
		require.Equal(t, c.stored, lookup(t, b), name)
	}
}

func releaseRules(t *testing.T, b Backend) {
	mine, other := held(5, "w1/n1"), held(6, "w2/n2")
	require.True(t, acquire(t, b, mine).OK)
	require.NoError(t, b.Release(t.Context(), []lease.Lease{mine}))
	require.Nil(t, lookup(t, b))
	require.NoError(t, b.Release(t.Context(), []lease.Lease{mine}), "an absent lease")

	require.True(t, acquire(t, b, other).OK)
	require.NoError(t, b.Release(t.Context(), []lease.Lease{mine}), "somebody else's lease")
	require.Equal(t, &other, lookup(t, b))
}

func heldExpires(t *testing.T, b Backend) {
	mine := held(5, "w1/n1")
	require.True(t, acquire(t, b, mine).OK)
	b.Advance(lease.TTL - tick)
	require.Equal(t, &mine, lookup(t, b))
	b.Advance(2 * tick)
	require.Nil(t, lookup(t, b))
	require.True(t, acquire(t, b, held(4, "w2/n2")).OK, "a lower generation takes what is free")
}

func reservationExpires(t *testing.T, b Backend) {
	require.True(t, reserve(t, b, reserved(5, "r1")).OK)
	b.Advance(lease.ReserveTTL - tick)
	require.NotNil(t, lookup(t, b))
	b.Advance(2 * tick)
	require.Nil(t, lookup(t, b))
	require.True(t, reserve(t, b, reserved(5, "r2")).OK)
}

func reservationTakenOver(t *testing.T, b Backend) {
	require.True(t, reserve(t, b, reserved(5, "r1")).OK)
	require.True(t, acquire(t, b, held(5, "w1/n1")).OK)
	b.Advance(lease.ReserveTTL + tick)
	require.Equal(t, lease.Held, renew(t, b, held(5, "w1/n1")))
}

func renewExtends(t *testing.T, b Backend) {
	mine := held(5, "w1/n1")
	require.True(t, acquire(t, b, mine).OK)
	for range 4 {
		b.Advance(lease.Renewal)
		require.Equal(t, lease.Held, renew(t, b, mine))
	}
	b.Advance(lease.TTL - tick)
	require.NotNil(t, lookup(t, b))
}

func acquireExtends(t *testing.T, b Backend) {
	mine := held(5, "w1/n1")
	require.True(t, acquire(t, b, mine).OK)
	b.Advance(lease.TTL - tick)
	require.True(t, acquire(t, b, mine).OK)
	b.Advance(lease.TTL - tick)
	require.Equal(t, &mine, lookup(t, b))
}

func forgottenStaysAbsent(t *testing.T, b Backend) {
	mine := held(5, "w1/n1")
	require.True(t, acquire(t, b, mine).OK)
	b.Forget()
	require.Equal(t, lease.Absent, renew(t, b, mine))
	require.Nil(t, lookup(t, b))
	require.True(t, acquire(t, b, held(6, "w1/n3")).OK)
}

func lookupStored(t *testing.T, b Backend) {
	mine := held(5, "w1/n1")
	other := lease.Lease{SKey: "other", Gen: 1 << 40, RunID: "run", Holder: lease.RouterHolder("r1")}
	require.True(t, acquire(t, b, mine).OK)
	require.True(t, reserve(t, b, other).OK)
	found, err := b.Lookup(t.Context(), []string{"none", other.SKey, skey})
	require.NoError(t, err)
	require.Equal(t, []*lease.Lease{nil, &other, &mine}, found)
}

func batchesKeepOrder(t *testing.T, b Backend) {
	const n = 1201
	leases := make([]lease.Lease, n)
	skeys := make([]string, n)
	for i := range leases {
		skeys[i] = fmt.Sprintf("s%d", i)
		leases[i] = lease.Lease{SKey: skeys[i], Gen: int64(i + 1), RunID: "run", Holder: "w1/n1"}
	}
	taken := leases[777]
	taken.Gen, taken.Holder = taken.Gen+1, "w2/n2"
	require.True(t, acquire(t, b, taken).OK)

	grants, err := b.Acquire(t.Context(), leases)
	require.NoError(t, err)
	require.Len(t, grants, n)
	renewed, err := b.Renew(t.Context(), leases)
	require.NoError(t, err)
	require.Len(t, renewed, n)
	found, err := b.Lookup(t.Context(), skeys)
	require.NoError(t, err)
	for i := range leases {
		if i == 777 {
			require.Equal(t, lease.Grant{Held: taken}, grants[i])
			require.Equal(t, lease.Lost, renewed[i])
			require.Equal(t, &taken, found[i])
			continue
		}
		require.True(t, grants[i].OK, i)
		require.Equal(t, lease.Held, renewed[i], i)
		require.Equal(t, &leases[i], found[i])
	}

	require.NoError(t, b.Release(t.Context(), leases))
	found, err = b.Lookup(t.Context(), skeys)
	require.NoError(t, err)
	for i, l := range found {
		require.Equal(t, i == 777, l != nil, i)
	}
}

func emptyBatch(t *testing.T, b Backend) {
	grants, err := b.Acquire(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, grants)
	renewed, err := b.Renew(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, renewed)
	require.NoError(t, b.Release(t.Context(), nil))
	found, err := b.Lookup(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, found)
	own, err := b.Own(t.Context(), "r1", nil)
	require.NoError(t, err)
	require.Empty(t, own)
}

func sessionsIndependent(t *testing.T, b Backend) {
	require.True(t, acquire(t, b, held(5, "w1/n1")).OK)
	other := lease.Lease{SKey: "other", Gen: 1, RunID: "run", Holder: "w2/n2"}
	require.True(t, acquire(t, b, other).OK)
	require.NoError(t, b.Release(t.Context(), []lease.Lease{other}))
	require.Equal(t, lease.Held, renew(t, b, held(5, "w1/n1")))
}
