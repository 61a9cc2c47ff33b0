package takeover

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/notice"
)

const apologyText = "Sorry, I had to give up on this message: working on it failed again and again. Your next message is answered as usual."

// GiveUp ends a run as dead, whatever it has cost, and whether or not it has an owner.
func (t *Taker) GiveUp(ctx context.Context, run store.ActiveRun, reason string) (Result, error) {
	calls, err := t.ledger(ctx, run.RunID)
	if err != nil {
		return Result{}, err
	}
	return t.giveUp(ctx, run, calls, reason)
}

func (t *Taker) giveUp(ctx context.Context, run store.ActiveRun, calls ledger, reason string) (Result, error) {
	s, err := t.Store.Session(ctx, run.SKey)
	switch {
	case err != nil:
		return Result{}, fmt.Errorf("read session: %w", err)
	case s.RunID != run.RunID || s.Gen != run.Gen || s.Owner != run.Owner:
		return Result{Outcome: Moved}, nil
	}
	d, err := t.dead(ctx, run, s, calls, reason)
	if err != nil {
		return Result{}, err
	}
	result, err := t.Store.GiveUp(ctx, d.form)
	switch {
	case err != nil:
		return Result{}, fmt.Errorf("give run up: %w", err)
	case result.Outcome != store.Finished:
		return Result{Outcome: Moved}, nil
	}
	t.count(ctx, Dead, calls.stallKey())
	t.Logger.ErrorContext(ctx, "run given up", "skey", run.SKey, "run_id", run.RunID, "gen", run.Gen, "attempt", run.Attempt,
		"stall", run.Stall, "err", reason)
	t.tellDead(ctx, d, result)
	return Result{Outcome: Dead, Gen: result.Gen, RunID: result.RunID}, nil
}

// dead is a run that is about to be given up.
type dead struct {
	run     store.ActiveRun
	profile string
	prompt  []store.InboxRow
	// newest is the message whose sender gets the apology, nil if none can be read.
	newest *event.Message
	form   store.GiveUp
}

func (t *Taker) dead(ctx context.Context, run store.ActiveRun, s store.Session, calls ledger, reason string) (*dead, error) {
	row, err := t.Store.Run(ctx, run.RunID)
	if err != nil {
		return nil, fmt.Errorf("read run: %w", err)
	}
	taken, _, err := inbox.Current(ctx, t.Store, s)
	if err != nil {
		return nil, err
	}
	d := &dead{run: run, profile: s.AgentID, prompt: taken.Prompt, newest: newest(taken.Prompt)}
	d.form = store.GiveUp{
		SKey: run.SKey, Gen: run.Gen, Owner: run.Owner, RunID: run.RunID, RunGen: row.FirstGen, From: taken.From, To: taken.To,
		NextRunID: uuid.Must(uuid.NewV7()), NextTraceparent: traceparent(taken.Waiting), Error: reason,
	}
	if d.form.Messages, d.form.Calls, err = calls.close(d.form.RunGen, run.RunID); err != nil {
		return nil, err
	}
	if d.form.Letter, err = letter(run, taken.Prompt, reason); err != nil {
		return nil, err
	}
	if d.newest != nil {
		d.form.Replies = []store.NewReply{notice.To(d.newest.ReplyTo, apologyText)}
	}
	return d, nil
}

func newest(prompt []store.InboxRow) *event.Message {
	for i := len(prompt) - 1; i >= 0; i-- {
		var m event.Message
		if json.Unmarshal(prompt[i].Body, &m) == nil && m.ReplyTo.Platform != "" {
			return &m
		}
	}
	return nil // nobody can be told
}

func traceparent(waiting []store.InboxRow) string {
	if len(waiting) == 0 {
		return ""
	}
	return waiting[0].Traceparent
}

// letter keeps the messages of the run, so that they can be sent again.
func letter(run store.ActiveRun, prompt []store.InboxRow, reason string) (store.DeadLetter, error) {
	payload := store.DeadRun{SKey: run.SKey, RunID: run.RunID, Rows: make([]json.RawMessage, len(prompt))}
	for i, row := range prompt {
		payload.Rows[i] = row.Body
	}
	raw, err := json.Marshal(payload)
	if err != nil {
		return store.DeadLetter{}, fmt.Errorf("encode messages of run %s: %w", run.RunID, err)
	}
	return store.DeadLetter{
		ID: uuid.Must(uuid.NewV7()), Kind: store.DeadKindRun, Ref: run.RunID.String(), Reason: reason, Payload: raw,
	}, nil
}
