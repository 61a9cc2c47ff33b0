package dispatch

import (
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/telemetry"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// Run is a queued run that a worker should take.
type Run struct {
	SKey string
	// Tenant is who waits for it: tenants take turns, see Deps.MaxRunning.
	Tenant string
	Class  string
	Gen    int64
	RunID  uuid.UUID
	// N numbers the rings of one (run, generation); the broker drops a second ring of the same number.
	N int64
	// Traceparent is the span that the doorbell belongs to, "" for none.
	Traceparent string
}

// Delivery is an outbox row that an egress should send. N and Traceparent are as in Run.
type Delivery struct {
	SKey        string
	Platform    string
	OutSeq      int64
	N           int64
	Traceparent string
}

// doorbell is a message for the bus with what its span needs.
type doorbell struct {
	bus.Msg
	template    string
	traceparent string
}

func (r Run) doorbell() (doorbell, error) {
	data, err := proto.Marshal(&runv1.Dispatch{Skey: r.SKey, Gen: r.Gen, RunId: r.RunID.String()})
	if err != nil {
		return doorbell{}, fmt.Errorf("encode doorbell of run %s: %w", r.RunID, err)
	}
	msg := bus.Msg{
		Subject: bus.RunSubject(r.Class, r.SKey),
		ID:      fmt.Sprintf("%s:%d:%d", r.RunID, r.Gen, r.N),
		Data:    data,
	}
	return doorbell{Msg: msg, template: telemetry.TemplateRun, traceparent: r.Traceparent}, nil
}

func (d Delivery) doorbell() (doorbell, error) {
	data, err := proto.Marshal(&deliveryv1.Doorbell{Skey: d.SKey, OutSeq: d.OutSeq})
	if err != nil {
		return doorbell{}, fmt.Errorf("encode doorbell of delivery %s:%d: %w", d.SKey, d.OutSeq, err)
	}
	msg := bus.Msg{
		Subject: bus.OutSubject(d.Platform, d.SKey),
		ID:      fmt.Sprintf("%s:%d:%d", d.SKey, d.OutSeq, d.N),
		Data:    data,
	}
	return doorbell{Msg: msg, template: telemetry.TemplateOut, traceparent: d.Traceparent}, nil
}
