package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/hermes-runtime/hermes/pkg/tool"
)

// AskUser is the name of the tool by which the model asks the user something. The loop executes it itself: a run that
// asks is suspended until there is an answer, which is the result of the call.
const AskUser = "ask_user"

const (
	// askDefault is how long an answer is awaited, askLongest the longest that a model may choose.
	askDefault = 24 * time.Hour
	askLongest = 7 * 24 * time.Hour
)

// AskUserSpec describes the tool.
func AskUserSpec() tool.Spec {
	return tool.Spec{
		Name: AskUser, Effect: tool.Read,
		Description: "Ask the user a question and wait for the answer. Use it only if you cannot go on without the answer, " +
			"or before something that cannot be undone. Calls behind it in the same step are not made.",
		Parameters: json.RawMessage(`{"type":"object","required":["question"],"properties":{` +
			`"question":{"type":"string","minLength":1,"description":"What you want to know, in the language of the user."},` +
			`"options":{"type":"array","maxItems":8,"items":{"type":"string","minLength":1},` +
			`"description":"Answers to choose from, shown as buttons."},` +
			`"timeout":{"type":"integer","minimum":60,"maximum":` + strconv.Itoa(int(askLongest/time.Second)) + `,` +
			`"description":"Seconds to wait for an answer; a day if left out."}}}`),
	}
}

// until is the argument that says when a question expires. The loop adds it to those of the model, so that it is stored
// with the call and is the same for every worker.
const until = "until"

// askArguments are the arguments of a stored call.
type askArguments struct {
	Question string    `json:"question"`
	Options  []string  `json:"options"`
	Timeout  float64   `json:"timeout"`
	Until    time.Time `json:"until"`
}

// dated adds to checked arguments when the question expires, whatever the model has said about that.
func (r *runner) dated(checked json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(checked, &all); err != nil { // they are checked: cannot fail
		return checked
	}
	delete(all, until)
	wait := askDefault
	var seconds float64
	if err := json.Unmarshal(all["timeout"], &seconds); err == nil { // it may be left out
		wait = time.Duration(seconds * float64(time.Second))
	}
	all[until] = json.RawMessage(r.deps.Now().Add(wait).UTC().Format(`"` + time.RFC3339 + `"`))
	dated, err := json.Marshal(all)
	if err != nil { // it was JSON before: cannot fail
		return checked
	}
	return dated
}

// asks reports whether a call is a question that has no result yet.
func (p *pending) asks() bool { return p.ready() && p.row.Name == AskUser }

// question reads what a call asks.
func (p *pending) question() (Question, error) {
	var args askArguments
	if err := json.Unmarshal(p.arguments, &args); err != nil {
		return Question{}, fmt.Errorf("arguments of %s: %w", AskUser, err)
	}
	return Question{CallID: p.call.ID, Text: args.Question, Options: args.Options, Until: args.Until}, nil
}

// askGroup settles the question of a group, or ends the run with ErrSuspended until it can be.
func (r *runner) askGroup(ctx context.Context, group []*pending) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	for _, p := range group {
		if !p.asks() {
			continue
		}
		if err := r.pose(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// pose settles a question by its answer.
func (r *runner) pose(ctx context.Context, p *pending) error {
	q, err := p.question()
	if err != nil { // of a call that somebody else has stored
		r.settle(p, CallFailed, errorResult(refusedText(err)))
		return nil
	}
	answer, err := r.answerTo(ctx, q)
	if err != nil {
		return err
	}
	if answer == nil {
		r.result.Question = &q
		return ErrSuspended
	}
	rep := r.observation(answer.Result)
	p.inboxSeq = answer.InboxSeq
	r.settle(p, rep.state, &rep.result)
	r.save(p)
	if err := r.checkpoint(ctx); err != nil { // it takes the answer out of the inbox
		return err
	}
	r.emit(ctx, Event{Kind: Answered, Tool: AskUser, CallID: q.CallID, Outcome: string(rep.result.Outcome)})
	return nil
}

func (r *runner) answerTo(ctx context.Context, q Question) (*Answer, error) {
	if r.in.Answer == nil {
		return nil, nil
	}
	return r.in.Answer(ctx, q)
}
