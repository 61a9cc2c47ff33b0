package bus_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/session"
)

func TestIngestSubjects_CoverEachPartitionOnce(t *testing.T) {
	t.Parallel()
	for _, streams := range []int{1, 2, 16, 64} {
		owner := make(map[string]string)
		for k := range streams {
			for _, s := range bus.IngestSubjects(k, streams) {
				require.NotContains(t, owner, s)
				owner[s] = bus.IngestStream(k, streams)
			}
		}
		require.Len(t, owner, session.Partitions)
		for p := range session.Partitions {
			require.Equal(t, bus.IngestStream(p, streams), owner[bus.IngestFilter(p)])
		}
	}
}

func TestPartitionOf_ReadsEveryKeyedSubject(t *testing.T) {
	t.Parallel()
	const skey = "abcdefghijklmnopqrstuvwxyz"
	for _, subject := range []string{
		bus.IngestSubject("acme", skey), bus.EventSubject(skey, "run_started"), bus.ControlSubject(skey),
		bus.DeltaSubject(skey), bus.SnapshotSubject(skey),
	} {
		p, err := bus.PartitionOf(subject)
		require.NoError(t, err, subject)
		require.Equal(t, session.Partition(skey), p, subject)
	}
	for _, subject := range []string{"", "ing", "ing.", "ing.64.acme.a", "ing.-1.acme.a", "ctl.worker.w1"} {
		_, err := bus.PartitionOf(subject)
		require.Error(t, err, subject)
	}
}

func TestCheckToken_RefusesWhatWouldChangeASubject(t *testing.T) {
	t.Parallel()
	require.NoError(t, bus.CheckToken("tenant", "acme-1_x"))
	for _, token := range []string{"", "a.b", "a b", "*", ">", "a>b", "A", "群-1", "a\r\nPUB x", strings.Repeat("a", 3) + "\x00"} {
		require.ErrorContains(t, bus.CheckToken("tenant", token), "tenant: ", token)
	}
}
