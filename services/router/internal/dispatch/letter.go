package dispatch

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

// Letter tells operators of a dead letter of admission; the letter itself is in the store.
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
	return doorbell{Msg: bus.Msg{Subject: bus.DeadLetterSubject("ingress", tenant), ID: l.ID.String(), Data: data}}, nil
}
