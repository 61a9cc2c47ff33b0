package dispatch

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// Letter tells operators of a dead letter of admission; the letter itself is in the store. Whoever makes a dead letter
// tells of it under its kind: those of runs come from a takeover, those of replies from egress.
type Letter struct {
	ID uuid.UUID `json:"id"`
	// Tenant is "" where the message could not be read.
	Tenant string `json:"tenant,omitempty"`
	SKey   string `json:"skey,omitempty"`
	MsgUID string `json:"msg_uid"`
	Reason string `json:"reason"`
}

// unknownTenant stands in subjects for a tenant that nobody could read.
const unknownTenant = "unknown"

func (l Letter) doorbell() (doorbell, error) {
	data, err := json.Marshal(l)
	if err != nil {
		return doorbell{}, fmt.Errorf("encode notice of dead letter %s: %w", l.ID, err)
	}
	tenant := l.Tenant
	if bus.CheckToken("tenant", tenant) != nil {
		tenant = unknownTenant
	}
	return doorbell{Msg: bus.Msg{Subject: bus.DeadLetterSubject(store.DeadKindIngress, tenant), ID: l.ID.String(), Data: data}}, nil
}
