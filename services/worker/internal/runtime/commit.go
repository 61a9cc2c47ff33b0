package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
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
	r.remember(f)
	if result.RunID != uuid.Nil {
		r.next = slot.Ended{NextRun: result.RunID, NextGen: result.Gen, Traceparent: f.NextTraceparent}
	}
	return nil
}

func (r *run) finish(f store.Finish) (result store.FinishResult, err error) {
	err = r.write(func(fence store.Fence) (err error) {
		f.Fence = fence
		result, err = r.Committer.Finish(r.hold, f)
		return err
	})
	return result, err
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
	_, err = r.checkpoint(store.Checkpoint{RunGen: r.FirstGen, ToolCalls: rows}) // a stop that it reports is seen by the finish
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
		RunGen: r.FirstGen, From: r.From, To: r.To, State: runState(t.Outcome), Error: failure(t.Failure),
		Usage: usage, Messages: messages, NextRunID: next,
	}
	parts := []channel.Part{{Markdown: t.Reply.Markdown, Notice: t.Reply.Notice}}
	if t.Outcome == turn.Cancelled {
		if f.To, parts, err = r.cancelled(parts[0]); err != nil {
			return store.Finish{}, err
		}
	}
	f.NextTraceparent = r.traceparentBehind(f.To)
	if f.Replies, err = r.repliesOf(parts); err != nil {
		return store.Finish{}, err
	}
	return f, r.settleReplacement(&f)
}

// settleReplacement adds what a run that never began still owes to the messages that its prompt has replaced.
func (r *run) settleReplacement(f *store.Finish) error {
	if !r.owes() {
		return nil
	}
	owed, err := r.replacement(nextN(r.stored, f.Messages))
	if err != nil {
		return err
	}
	f.Messages, f.Replies = append(f.Messages, owed.messages...), append(f.Replies, owed.replies...)
	return nil
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

// cancelled says where the range of a stopped run ends and what is replied: what it had said so far, if anything, and a
// confirmation. A run that was interrupted by a message replies nothing: the message is answered instead. Rows that came
// since the claim count too, so they are read again.
func (r *run) cancelled(partial channel.Part) (to int64, parts []channel.Part, err error) {
	rows, err := read(r.hold, func(ctx context.Context) ([]store.InboxRow, error) {
		return r.Store.InboxAfter(ctx, r.SKey, r.To)
	})
	if err != nil {
		return 0, nil, fmt.Errorf("read messages behind the stopped run: %w", err)
	}
	to, dropped, waiting := inbox.StopScope(rows, r.To)
	if !inbox.AsksForStop(r.sinceClaim(rows)) {
		return to, nil, nil
	}
	return to, []channel.Part{partial, {Markdown: inbox.StoppedText(waiting, dropped), Notice: true}}, nil
}

// sinceClaim leaves out the rows that were there when the run was claimed, unless it was stopped by then: a stop among
// them was meant for an earlier run.
func (r *run) sinceClaim(rows []store.InboxRow) []store.InboxRow {
	if r.StopRun == r.RunID {
		return rows
	}
	newest := (&known{rows: r.Inbox}).seen(r.DoneSeq)
	return slices.DeleteFunc(slices.Clone(rows), func(row store.InboxRow) bool { return row.Seq <= newest })
}

// repliesOf makes one reply of each part that says something.
func (r *run) repliesOf(parts []channel.Part) ([]store.NewReply, error) {
	var replies []store.NewReply
	for _, part := range parts {
		if part.Markdown == "" {
			continue
		}
		reply, err := replyTo(r.address(), "", part)
		if err != nil {
			return nil, err
		}
		replies = append(replies, reply...)
	}
	return replies, nil
}
