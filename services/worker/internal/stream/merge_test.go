package stream

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// recorded is a bus that keeps the frames.
type recorded struct {
	bus.Notifier
	frames []*runv1.Frame
}

func (r *recorded) Notify(_ context.Context, m bus.Msg) error {
	f := &runv1.Frame{}
	r.frames = append(r.frames, f)
	return proto.Unmarshal(m.Data, f)
}

func TestStream_TellsOfMessagesThatJoin(t *testing.T) {
	t.Parallel()
	r := &recorded{}
	s := NewHub(r, slog.New(slog.DiscardHandler)).Open("skey", 3, "r")
	s.Begin(t.Context(), []string{"m"}, true)
	s.Merge(t.Context(), []string{"n", "o"})
	require.Len(t, r.frames, 2)
	require.Equal(t, []string{"n", "o"}, r.frames[1].GetMsgUids(), "who follows them learns of the run")
	require.Equal(t, []string{"m", "n", "o"}, s.log.snapshot(0, 0).GetMsgUids())
	s.Close()
	s.Merge(t.Context(), []string{"p"})
	require.Len(t, r.frames, 2)
}
