package control

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

func TestHandle_KeepsTheNewestMessageForTheRunningTurn(t *testing.T) {
	t.Parallel()
	h := NewHandle(t.Context(), store.Fence{SKey: "s", Gen: 5})
	defer h.Close()
	require.Zero(t, h.Added())
	for _, seq := range []int64{7, 9, 8} {
		h.signal(&runv1.Control{Kind: runv1.ControlKind_CONTROL_KIND_STEER, Seq: seq, Gen: 5})
	}
	h.signal(&runv1.Control{Kind: runv1.ControlKind_CONTROL_KIND_STEER, Seq: 12, Gen: 4})
	require.Equal(t, int64(9), h.Added(), "one that was meant for an earlier owner does not count")
}
