package operatorapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/store"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/api/internal/runapi"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// sessionInfo is a session as operators see it.
type sessionInfo struct {
	SKey           string     `json:"skey"`
	Tenant         string     `json:"tenant"`
	Partition      int        `json:"partition"`
	Profile        string     `json:"profile"`
	State          string     `json:"state"`
	Gen            int64      `json:"gen"`
	RunID          *string    `json:"run_id"`
	Owner          string     `json:"owner,omitempty"`
	WaitsFor       string     `json:"waits_for,omitempty"`
	WakeAt         *time.Time `json:"wake_at,omitempty"`
	ConversationID string     `json:"conversation_id"`
	LastSeq        int64      `json:"last_seq"`
	DoneSeq        int64      `json:"done_seq"`
	OutSeq         int64      `json:"out_seq"`
	OutSent        int64      `json:"out_sent"`
	Attempt        int        `json:"attempt"`
	Stall          int        `json:"stall"`
	QueuedAt       *time.Time `json:"queued_at"`
	TouchedAt      *time.Time `json:"touched_at"`
}

func sessionView(s store.Session) sessionInfo {
	v := sessionInfo{
		SKey: s.SKey, Tenant: s.Tenant, Partition: s.Partition, Profile: s.AgentID, State: string(s.State), Gen: s.Gen,
		Owner: s.Owner, ConversationID: s.SessionID.String(), LastSeq: s.LastSeq, DoneSeq: s.DoneSeq, OutSeq: s.OutSeq,
		OutSent: s.OutSent, Attempt: s.Attempt, Stall: s.Stall, QueuedAt: at(s.QueuedAt), TouchedAt: at(s.TouchedAt),
	}
	if s.RunID != uuid.Nil {
		v.RunID = runapi.OrNull(s.RunID.String())
	}
	if s.State == store.Waiting {
		v.WaitsFor, v.WakeAt = string(s.WaitKind), at(s.WakeAt)
	}
	return v
}

type sessionList struct {
	Sessions []sessionInfo `json:"sessions"`
	// Next is the value of after for the next page, null at the end.
	Next *string `json:"next"`
}

// Sessions lists sessions in the order of their skey: ?tenant, ?state, ?after and ?limit.
func (h *Handler) Sessions(w http.ResponseWriter, r *http.Request) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	q := store.SessionQuery{
		Tenant: query.Get("tenant"), State: store.SessionState(query.Get("state")), After: query.Get("after"), Limit: limit,
	}
	states := []store.SessionState{"", store.Idle, store.Queued, store.Running, store.Waiting, store.Paused}
	if !slices.Contains(states, q.State) {
		return httpapi.Invalid("state", "state: must be idle, queued, running, waiting or paused")
	}
	found, err := h.Store.FindSessions(r.Context(), q)
	if err != nil {
		return clientError("sessions", err)
	}
	list := sessionList{Sessions: make([]sessionInfo, len(found))}
	for i, s := range found {
		list.Sessions[i] = sessionView(s)
	}
	if len(found) == limit {
		list.Next = &found[limit-1].SKey
	}
	httpapi.WriteJSON(w, http.StatusOK, list)
	return nil
}

// Session shows one session.
func (h *Handler) Session(w http.ResponseWriter, r *http.Request) error {
	s, err := h.Store.Session(r.Context(), r.PathValue("skey"))
	if err != nil {
		return clientError("session", err)
	}
	httpapi.WriteJSON(w, http.StatusOK, sessionView(s))
	return nil
}

// Pause fences the current run off and lets the session begin no other; messages are kept.
func (h *Handler) Pause(w http.ResponseWriter, r *http.Request) error {
	s, err := h.Store.Pause(r.Context(), r.PathValue("skey"))
	if err != nil {
		return clientError("session", err)
	}
	h.did(r, "pause", "skey", s.SKey, "gen", s.Gen)
	h.fence(r.Context(), s.SKey, s.Gen, s.RunID)
	httpapi.WriteJSON(w, http.StatusOK, sessionView(s))
	return nil
}

// fence tells the worker that holds a run that it holds it no longer; without that it learns it with its next write.
func (h *Handler) fence(ctx context.Context, skey string, gen int64, run uuid.UUID) {
	if run == uuid.Nil {
		return
	}
	data, err := proto.Marshal(&runv1.Control{
		Kind: runv1.ControlKind_CONTROL_KIND_FENCED, Gen: gen, RunId: run.String(),
	})
	if err == nil {
		err = h.Bus.Notify(ctx, bus.Msg{Subject: bus.ControlSubject(skey), Data: data})
	}
	if err != nil {
		h.Logger.WarnContext(ctx, "worker not told of the fence", "skey", skey, "gen", gen, "err", err)
	}
}

// resumed is the answer to Resume.
type resumed struct {
	State string  `json:"state"`
	RunID *string `json:"run_id"`
}

// Resume lets a paused session go on: with the run that was interrupted, or with what waits. The sweeper dispatches it
// within seconds.
func (h *Handler) Resume(w http.ResponseWriter, r *http.Request) error {
	next, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make run id: %w", err)
	}
	skey := r.PathValue("skey")
	u, err := h.Store.Unpause(r.Context(), skey, next)
	if err != nil {
		return clientError("session", err)
	}
	h.did(r, "resume", "skey", skey, "gen", u.Gen)
	answer := resumed{State: string(u.State)}
	if u.RunID != uuid.Nil {
		answer.RunID = runapi.OrNull(u.RunID.String())
	}
	httpapi.WriteJSON(w, http.StatusOK, answer)
	return nil
}
