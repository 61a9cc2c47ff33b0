package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/telemetry"
)

// candidate is an entry on its way into the store: as a message, as a dead letter, or as nothing but a step of the
// offset.
type candidate struct {
	delivery
	span        trace.Span
	traceparent string

	event     *event.Message // nil: can't be read
	treatment treatment
	// known is what is remembered of the session; counted: the message is among those that come.
	known   *backlogged
	counted bool
	// ready: the treatment has been applied.
	ready   bool
	row     store.AdmitMessage
	dead    *store.DeadLetter
	ignored reason
}

// candidate reads an entry and starts its consumer span, which ends when the entry is stored or dropped.
func (a *Admitter) candidate(ctx context.Context, d delivery) *candidate {
	ctx, span := telemetry.StartProcess(ctx, a.Tracer, telemetry.TemplateIngest, d.Msg)
	c := &candidate{delivery: d, span: span, traceparent: event.Traceparent(ctx)}
	if err := a.read(c); err != nil {
		c.bury(err)
	}
	return c
}

func (a *Admitter) read(c *candidate) error {
	m, err := event.Decode(c.Data)
	if err != nil {
		return err
	}
	if err := admissible(m, c.Partition); err != nil {
		return err
	}
	busy := a.Busy(m.Profile)
	if asMessage(m) && m.BusyPolicy == "" && busy.Policy != event.PolicyQueue {
		m.BusyPolicy = busy.Policy // the row says how it wants to be taken
	}
	c.known = a.backlog.of(m.SKey)
	c.treatment = treatmentOf(m, busy, busy.Pending > 0 && c.known.atMost() >= int64(busy.Pending))
	c.row = store.AdmitMessage{
		SKey: m.SKey, Tenant: m.Tenant, SessionKey: m.SessionKey,
		AgentID: m.Profile, RunClass: runClass(m),
		UID: m.UID, Kind: inboxKind(m.Kind), Group: m.Group, Items: m.ItemUIDs,
		StreamSeq: int64(c.Seq), Traceparent: c.traceparent,
		SessionID: newID(), RunID: newID(),
		WantsRun: m.Kind == event.KindMessage, EndsCollect: m.Kind == event.KindCommand,
	}
	if err := c.rewrite(m); err != nil {
		return err
	}
	c.count()
	return nil
}

// count makes a message one that comes, until it ends.
func (c *candidate) count() {
	if c.event.Kind == event.KindMessage {
		c.known.coming++
		c.counted = true
	}
}

// rewrite makes m the message that is stored.
func (c *candidate) rewrite(m *event.Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode inbox body: %w", err)
	}
	c.event, c.row.Body = m, body
	return nil
}

// admissible reports what event.Decode does not: fields from which the router builds subjects, and the partition, whose
// order only its own log keeps.
func admissible(m *event.Message, partition int) error {
	errs := []error{bus.CheckToken("run_class", runClass(m)), bus.CheckToken("reply_to.platform", m.ReplyTo.Platform)}
	if p := session.Partition(m.SKey); p != partition {
		errs = append(errs, fmt.Errorf("skey: belongs to partition %d", p))
	}
	if m.Kind == event.KindCommand && m.Command == nil {
		errs = append(errs, errors.New("command: must not be empty"))
	}
	return errors.Join(errs...)
}

func runClass(m *event.Message) string {
	if m.RunClass == "" {
		return config.DefaultPool
	}
	return m.RunClass
}

// inboxKind maps events to rows. Only messages want a run; the others are stored and covered by the next one.
func inboxKind(k event.Kind) store.InboxKind {
	switch k {
	case event.KindMessage:
		return store.KindUser
	case event.KindCommand:
		return store.KindCommand
	case event.KindAction:
		return store.KindApproval
	case event.KindTimer:
		return store.KindTimer
	case event.KindEdit, event.KindReceipt, event.KindSystem:
		return store.KindSystem
	default:
		return store.KindSystem
	}
}

// bury turns the candidate into a dead letter. Whatever it holds, the store takes that.
func (c *candidate) bury(reason error) {
	payload, err := json.Marshal(deadPayload{Subject: c.Subject, Data: c.Data})
	if err != nil { // strings and bytes only: cannot fail
		panic(err)
	}
	c.dead = &store.DeadLetter{
		ID: newID(), Kind: deadKind, Ref: rowText(c.ID), Reason: rowText(reason.Error()), Payload: payload,
	}
}

// deadKind is the kind of dead letters that never reached an inbox.
const deadKind = store.DeadKindIngress

// deadPayload is what a dead letter keeps of an entry; Data is base64 in JSON.
type deadPayload struct {
	Subject string `json:"subject"`
	Data    []byte `json:"data"`
}

// end ends the span, and the message no longer counts as one that comes.
func (c *candidate) end(err error) {
	if c.counted {
		c.known.coming--
		c.counted = false
	}
	telemetry.EndSpan(c.span, err)
}

// rowText is text that a text column takes.
func rowText(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
}

// newID returns a UUIDv7; it fails only if the system has no randomness, which Go treats as fatal.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// asMessage turns a command that only says how its text is meant into that text, and reports whether m is a message now.
func asMessage(m *event.Message) bool {
	if m.Kind == event.KindCommand && m.Command.Args != "" {
		if policy, ok := policyCommands()[m.Command.Name]; ok {
			m.Kind, m.Text, m.BusyPolicy, m.Command = event.KindMessage, m.Command.Args, policy, nil
		}
	}
	return m.Kind == event.KindMessage
}

// policyCommands say how the text behind them is meant, whatever the profile does.
func policyCommands() map[string]event.Policy {
	return map[string]event.Policy{
		"queue": event.PolicyQueue, "steer": event.PolicySteer, "interrupt": event.PolicyInterrupt,
	}
}
