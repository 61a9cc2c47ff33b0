package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/intent"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/tool"
	"github.com/hermes-runtime/hermes/services/worker/internal/slot"
)

const outcomeSuspended = "suspended"

// suspend stores what the run has done so far and its question, and gives its slot back until there is an answer. The
// stream ends in silence: that of the next attempt has a higher generation and starts over.
func (r *run) suspend(soFar agent.Result) error {
	q := *soFar.Question
	cp, err := r.stepOf(agent.Step{Messages: soFar.Entries, Calls: soFar.Calls})
	if err != nil {
		return err
	}
	if !r.asked[q.CallID] {
		if err := r.prepareQuestion(&cp, q); err != nil {
			return err
		}
	}
	var result store.SuspendResult
	err = r.write(func(fence store.Fence) (err error) {
		cp.Fence = fence
		result, err = r.Committer.Suspend(r.hold, store.Suspension{
			Checkpoint: cp, Seen: r.seen(r.DoneSeq), Kind: store.WaitQuestion, WakeAt: q.Until,
		})
		return err
	})
	if err != nil {
		return err
	}
	r.suspended = true
	if result.State == store.Queued { // the answer was faster
		r.next = slot.Ended{NextRun: r.RunID, NextGen: result.Gen, Traceparent: r.traceparent()}
	}
	r.tellQuestion(q, cp.Replies, result.FirstOut)
	return nil
}

// prepareQuestion adds the question as its reader sees it. Answers that are there already were meant for something else:
// they are taken out of the inbox, so that none of them approves what nobody has seen.
func (r *run) prepareQuestion(cp *store.Checkpoint, q agent.Question) (err error) {
	if err := r.readOn(r.hold); err != nil {
		return err
	}
	for _, row := range r.rows {
		if row.Kind == store.KindApproval && r.free(row) {
			cp.Taken = append(cp.Taken, row.Seq)
		}
	}
	cp.Replies, err = r.questionReply(q)
	return err
}

// wasAsked reports whether an earlier attempt has put the question to its reader.
func (r *run) wasAsked(ctx context.Context, q agent.Question) (bool, error) {
	if r.Attempts == 1 {
		return false, nil
	}
	replies, err := read(ctx, func(ctx context.Context) ([]store.Reply, error) { return r.Store.RunReplies(ctx, r.RunID) })
	if err != nil {
		return false, fmt.Errorf("read replies of the run: %w", err)
	}
	return slices.ContainsFunc(replies, func(reply store.Reply) bool { return reply.DKey == r.questionKey(q) }), nil
}

func (r *run) questionKey(q agent.Question) string { return r.RunID.String() + ":" + q.CallID }

func (r *run) questionReply(q agent.Question) ([]store.NewReply, error) {
	part := channel.Part{Markdown: q.Text}
	for i, option := range q.Options {
		part.Actions = append(part.Actions, channel.Action{ID: r.buttonID(q.CallID, i), Label: option, CallID: q.CallID})
	}
	return replyTo(r.address(), r.questionKey(q), part)
}

// tellQuestion shows the question to whoever follows the run, and rings for it.
func (r *run) tellQuestion(q agent.Question, replies []store.NewReply, firstOut int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.hold), tellTimeout)
	defer cancel()
	r.Stream.ToolStarted(ctx, agent.AskUser, q.CallID)
	r.Stream.ToolProgress(ctx, agent.AskUser, q.CallID, q.Text)
	r.ring(ctx, replies, firstOut)
	r.events.emit(event.Lifecycle{Type: event.ApprovalRequested, Name: agent.AskUser, CallID: q.CallID})
}

// buttonID fits into what platforms give a button, and tells the buttons of this question from all others.
func (r *run) buttonID(callID string, option int) string {
	return r.buttonPrefix(callID) + strconv.Itoa(option)
}

func (r *run) buttonPrefix(callID string) string {
	sum := sha256.Sum256([]byte(r.RunID.String() + ":" + callID))
	return "ask:" + hex.EncodeToString(sum[:8]) + ":"
}

// answerTo finds what settles a question: the first row that answers it since it was asked, or the end of its time.
func (r *run) answerTo(ctx context.Context, q agent.Question) (*agent.Answer, error) {
	asked, err := r.wasAsked(ctx, q)
	if err != nil {
		return nil, err
	}
	if asked {
		r.asked[q.CallID] = true
		if answer := r.answered(q); answer != nil {
			return answer, nil
		}
	}
	if r.Now().Before(q.Until) {
		return nil, nil
	}
	return &agent.Answer{Result: tool.Result{Outcome: tool.Timeout, Content: noAnswerText}}, nil
}

func (r *run) answered(q agent.Question) *agent.Answer {
	for _, row := range r.rows {
		if row.Kind != store.KindApproval || !r.free(row) {
			continue
		}
		var m event.Message
		if err := json.Unmarshal(row.Body, &m); err != nil {
			r.Logger.ErrorContext(r.hold, "answer unreadable", "skey", r.SKey, "run_id", r.RunID, "seq", row.Seq, "err", err)
			continue
		}
		if text := r.answerOf(&m, q); text != "" {
			r.out[row.Seq] = &m
			return &agent.Answer{InboxSeq: row.Seq, Result: tool.Result{Outcome: tool.OK, Content: text}}
		}
	}
	return nil
}

// answerOf is what a message answers to a question, "" if it answers another one. Buttons name their question; commands
// and texts mean the open one unless they name another.
func (r *run) answerOf(m *event.Message, q agent.Question) string {
	text := strings.TrimSpace(intent.Clean(m.Text))
	if number, ok := strings.CutPrefix(text, r.buttonPrefix(q.CallID)); ok {
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < len(q.Options) {
			return q.Options[i]
		}
		return ""
	}
	switch {
	case m.CallID != "" && m.CallID != q.CallID, m.CallID == "" && m.Kind == event.KindAction:
		return ""
	case m.Command != nil:
		return commandAnswer(*m.Command)
	default:
		return text
	}
}

// commandAnswer puts a command into words.
func commandAnswer(c event.Command) string {
	word := map[string]string{"approve": "approved", "deny": "denied"}[c.Name]
	args := strings.TrimSpace(intent.Clean(c.Args))
	switch {
	case word == "":
		return args
	case args == "":
		return word
	default:
		return word + ": " + args
	}
}
