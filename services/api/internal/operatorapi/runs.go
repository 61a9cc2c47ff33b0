package operatorapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/store"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/api/internal/runapi"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
	"github.com/hermes-runtime/hermes/services/internal/takeover"
)

// killReason is what the dead letter of a killed run says.
const killReason = "killed by an operator"

// killed is the answer to Kill.
type killed struct {
	RunID string `json:"run_id"`
	// NextRunID is the run of the messages that wait, null if there are none.
	NextRunID *string `json:"next_run_id"`
}

// Kill ends a run as dead, whatever its worker does: the user gets an apology, the messages of the run become a dead
// letter, and the session goes on with the next message.
func (h *Handler) Kill(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	s, err := h.sessionOf(r.Context(), id)
	if err != nil {
		return err
	}
	result, err := h.Killer.GiveUp(r.Context(), activeRun(s), killReason)
	switch {
	case err != nil:
		return clientError("run", err)
	case result.Outcome != takeover.Dead:
		return conflict("run_moved", "the run has ended or changed its owner meanwhile, look again")
	}
	h.did(r, "kill", "skey", s.SKey, "run_id", id, "gen", s.Gen)
	h.killAtWorker(r.Context(), s)
	answer := killed{RunID: id.String()}
	if result.RunID != uuid.Nil {
		answer.NextRunID = runapi.OrNull(result.RunID.String())
	}
	httpapi.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// sessionOf returns the session whose current run id is.
func (h *Handler) sessionOf(ctx context.Context, id uuid.UUID) (store.Session, error) {
	run, err := h.Store.Run(ctx, id)
	if err != nil {
		return store.Session{}, clientError("run", err)
	}
	s, err := h.Store.Session(ctx, run.SKey)
	switch {
	case err != nil:
		return s, clientError("session", err)
	case run.State.Final() || s.RunID != id:
		return s, conflict("run_ended", "the run has ended")
	case s.State == store.Paused:
		return s, conflict("session_paused", "the session is paused: resume it first")
	}
	return s, nil
}

func activeRun(s store.Session) store.ActiveRun {
	return store.ActiveRun{
		SKey: s.SKey, Tenant: s.Tenant, RunClass: s.RunClass, Gen: s.Gen, RunID: s.RunID, Owner: s.Owner,
		Attempt: s.Attempt, Stall: s.Stall, StallKey: s.StallKey,
	}
}

// killAtWorker makes the worker drop the run at once; else it notices with its next write that it is fenced.
func (h *Handler) killAtWorker(ctx context.Context, s store.Session) {
	worker, _, owned := strings.Cut(s.Owner, "/")
	if !owned {
		return
	}
	err := h.command(ctx, worker, &runv1.WorkerCommand{
		Kind: runv1.WorkerCommandKind_WORKER_COMMAND_KIND_KILL_RUN, RunId: s.RunID.String(),
	})
	if err != nil {
		h.Logger.WarnContext(ctx, "worker not told of the kill", "skey", s.SKey, "run_id", s.RunID, "worker_id", worker, "err", err)
	}
}

// command asks one worker process and returns its refusal, if it refuses.
func (h *Handler) command(ctx context.Context, worker string, c *runv1.WorkerCommand) error {
	data, err := proto.Marshal(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	answer, err := h.Bus.Request(ctx, bus.Msg{Subject: bus.WorkerSubject(worker), Data: data})
	if err == nil && string(answer.Data) != accepted {
		return fmt.Errorf("%w: %s", errRefused, answer.Data)
	}
	return err
}

// accepted is what a worker answers that does what it was asked to.
const accepted = "ok"

// errRefused: the worker says why it does not do it.
var errRefused = errors.New("the worker refuses")
