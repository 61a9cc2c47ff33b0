package dispatch

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// Signal wakes the worker that holds a run. What it tells is also in the store, where the worker looks now and then.
type Signal struct {
	SKey string
	Kind runv1.ControlKind
	// Seq is the inbox row behind it, Gen the session's generation after that row.
	Seq, Gen int64
	RunID    uuid.UUID
}

// Signal sends s now. A lost signal only delays what it tells.
func (d *Dispatcher) Signal(ctx context.Context, s Signal) {
	if err := d.signal(ctx, s); err != nil {
		d.Logger.WarnContext(ctx, "control signal not sent", "skey", s.SKey, "run_id", s.RunID, "err", err)
	}
}

func (d *Dispatcher) signal(ctx context.Context, s Signal) error {
	data, err := proto.Marshal(&runv1.Control{Kind: s.Kind, Seq: s.Seq, Gen: s.Gen, RunId: s.RunID.String()})
	if err != nil {
		return fmt.Errorf("encode control signal: %w", err)
	}
	return d.Bus.Notify(ctx, bus.Msg{Subject: bus.ControlSubject(s.SKey), Data: data})
}
