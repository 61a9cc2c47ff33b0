package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/intent"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/turn"
	"github.com/hermes-runtime/hermes/services/worker/internal/slot"
)

// committer ends the run for the pipeline.
type committer struct{ *run }

// Commit implements turn.Committer. Like every write it lasts as long as the run is held, not as long as ctx.
func (c committer) Commit(_ context.Context, t *turn.Turn) error { return c.commit(t) }

// commit stores what is left of the turn, the reply and the end of the run.
func (r *run) commit(t *turn.Turn) error {
	if err := r.settleCalls(t.Result.Calls); err != nil {
		return err
	}
	f, err := r.finishOf(t)
	if err != nil {
		return err
	}
	result, err := r.finish(f)
	if err == nil && result.Outcome == store.FinishStopped {
		t.Outcome = turn.Cancelled
		if f, err = r.finishOf(t); err != nil {
			return err
		}
		result, err = r.finish(f)
	}
	if err != nil {
		return err
	}
	if result.Outcome != store.Finished {
		return fmt.Errorf("finish: %w", agent.ErrFenced)
	}
	r.committed, r.result, r.state, r.replies = true, result, f.State, f.Replies
	if result.RunID != uuid.Nil {
		r.next = slot.Ended{NextRun: result.RunID, NextGen: result.Gen, Traceparent: f.NextTraceparent}
	}
	return nil
}

func (r *run) finish(f store.Finish) (store.FinishResult, error) {
	if err := r.lost(); err != nil {
		return store.FinishResult{}, err
	}
	result, err := r.Committer.Finish(r.hold, f)
	return result, r.written(err)
}

// settleCalls stores the results that arrived after the last checkpoint, so that the ledger of an ended run tells what
// happened.
func (r *run) settleCalls(calls []agent.Call) error {
	if len(calls) == 0 {
		return nil
	}
	rows, err := ledgerOf(calls)
	if err != nil {
		return err
	}
	_, err = r.checkpoint(store.Checkpoint{ToolCalls: rows}) // a stop that it reports is seen by the finish
	return err
}

func (r *run) finishOf(t *turn.Turn) (store.Finish, error) {
	messages, err := r.rowsOf(t.Result.Entries)
	if err != nil {
		return store.Finish{}, err
	}
	usage, err := json.Marshal(t.Result.Usage)
	if err != nil {
		return store.Finish{}, fmt.Errorf("encode usage: %w", err)
	}
	next, err := uuid.NewV7()
	if err != nil {
		return store.Finish{}, fmt.Errorf("make run id: %w", err)
	}
	f := store.Finish{
		Fence: r.Fence, RunGen: r.FirstGen, From: r.From, To: r.To, State: runState(t.Outcome), Error: failure(t.Failure),
		Usage: usage, Messages: messages, NextRunID: next,
	}
	confirmation := ""
	if t.Outcome == turn.Cancelled {
		if f.To, confirmation, err = r.stopScope(); err != nil {
			return store.Finish{}, err
		}
	}
	f.NextTraceparent = r.traceparentBehind(f.To)
	f.Replies, err = r.repliesOf(t, confirmation)
	return f, err
}

func runState(o turn.Outcome) store.RunState {
	switch o {
	case turn.Done:
		return store.RunDone
	case turn.Cancelled:
		return store.RunCancelled
	default:
		return store.RunFailed
	}
}

// failureBytes bounds the stored reason of a failed run.
const failureBytes = 2048

// failure is the reason for operators, as a database takes it.
func failure(err error) string {
	if err == nil {
		return ""
	}
	text := intent.Clean(err.Error())
	if len(text) > failureBytes {
		text = strings.ToValidUTF8(text[:failureBytes], "")
	}
	return text
}

// stopScope says where the range of the stopped run ends and what its owner is told. Messages that came since the claim
// count too, so the rows are read again.
func (r *run) stopScope() (to int64, confirmation string, err error) {
	rows, err := read(r.hold, func(ctx context.Context) ([]store.InboxRow, error) {
		return r.Store.InboxAfter(ctx, r.SKey, r.To)
	})
	if err != nil {
		return 0, "", fmt.Errorf("read messages behind the stopped run: %w", err)
	}
	to, dropped, waiting := inbox.StopScope(rows, r.To)
	return to, inbox.StoppedText(waiting, dropped), nil
}

// repliesOf makes one reply of the turn's answer. A cancelled run tells what it had so far, if anything, and confirms
// the stop in a reply of its own.
func (r *run) repliesOf(t *turn.Turn, confirmation string) ([]store.NewReply, error) {
	var parts []channel.Part
	if t.Reply.Markdown != "" {
		parts = append(parts, channel.Part{Markdown: t.Reply.Markdown, Notice: t.Reply.Notice})
	}
	if confirmation != "" {
		parts = append(parts, channel.Part{Markdown: confirmation, Notice: true})
	}
	address := r.address()
	if address.Platform == "" { // no message that could be read, nobody to tell
		return nil, nil
	}
	target, err := json.Marshal(address)
	if err != nil {
		return nil, fmt.Errorf("encode reply address: %w", err)
	}
	replies := make([]store.NewReply, len(parts))
	for i, part := range parts {
		replies[i] = store.NewReply{
			Platform: address.Platform, Target: target, Parts: channel.EncodeParts(part), Read: address.Read(),
		}
	}
	return replies, nil
}
