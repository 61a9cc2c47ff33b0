package operatorapi

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/services/internal/hold"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// held is a held partition as operators see it.
type held struct {
	Partition int       `json:"partition"`
	Reason    string    `json:"reason"`
	Since     time.Time `json:"since"`
	// Offset is how far Postgres says that the partition was admitted, CopiedOffset how far it had been.
	Offset       int64  `json:"offset"`
	CopiedOffset int64  `json:"copied_offset"`
	Choice       string `json:"choice"`
}

func heldView(h hold.Hold) held {
	return held{
		Partition: h.Partition, Reason: h.Reason, Since: h.Since.UTC(), Offset: h.Offset, CopiedOffset: h.CopiedOffset,
		Choice: string(h.Choice),
	}
}

// Partitions lists the partitions that are held, and those that work off what was chosen for them.
func (h *Handler) Partitions(w http.ResponseWriter, r *http.Request) error {
	kv, err := h.Bus.OpenKV(r.Context(), bus.BucketEngine)
	if err != nil {
		return clientError("partitions", err)
	}
	holds, err := hold.List(r.Context(), kv)
	if err != nil {
		return clientError("partitions", err)
	}
	list := make([]held, len(holds))
	for i, one := range holds {
		list[i] = heldView(one)
	}
	httpapi.WriteJSON(w, http.StatusOK, map[string][]held{"held": list})
	return nil
}

// Choose lets a held partition go on.
func (h *Handler) Choose(w http.ResponseWriter, r *http.Request) error {
	partition, err := strconv.Atoi(r.PathValue("partition"))
	if err != nil || partition < 0 || partition >= session.Partitions {
		return httpapi.Invalid("partition", fmt.Sprintf("partition: must be a number from 0 to %d", session.Partitions-1))
	}
	var body struct {
		Choice string `json:"choice"`
	}
	if err := readInto(w, r, &body); err != nil {
		return err
	}
	choice, err := hold.ParseChoice(body.Choice)
	if err != nil {
		return httpapi.Invalid("choice", "choice: "+err.Error())
	}
	chosen, err := h.choose(r, partition, choice)
	if err != nil {
		return clientError("held partition", err)
	}
	h.did(r, "choose", "partition", partition, "choice", choice)
	httpapi.WriteJSON(w, http.StatusAccepted, heldView(chosen))
	return nil
}

func (h *Handler) choose(r *http.Request, partition int, choice hold.Choice) (hold.Hold, error) {
	kv, err := h.Bus.OpenKV(r.Context(), bus.BucketEngine)
	if err != nil {
		return hold.Hold{}, err
	}
	now, _, err := hold.Get(r.Context(), kv, partition)
	switch {
	case err != nil:
		return hold.Hold{}, err
	case now == nil:
		return hold.Hold{}, hold.ErrNotHeld
	}
	now.Choice = choice
	return *now, hold.Choose(r.Context(), kv, partition, choice)
}
