package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	fake "github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/webhook"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
	"github.com/hermes-runtime/hermes/services/egress/internal/delivery"
	"github.com/hermes-runtime/hermes/services/internal/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natsserver.IgnoreClock()) }

const (
	soon      = 10 * time.Second
	replyKey  = "reply-secret"
	traceOf   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	plainName = "plain"
)

// bench is a broker, a store whose clock can be moved, and a webhook receiver.
type bench struct {
	*servicetest.Env
	t        *testing.T
	ahead    atomic.Int64
	receiver *fake.Receiver
	events   recorder
	rings    atomic.Int64
}

type recorder struct {
	mu  sync.Mutex
	all []event.Lifecycle
}

func (r *recorder) Emit(e event.Lifecycle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
}

func (r *recorder) outcomes(typ event.Type) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.all {
		if e.Type == typ {
			out = append(out, e.Outcome)
		}
	}
	return out
}

func setup(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t}
	b.Env = servicetest.New(t, memstore.WithClock(func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }))
	r, err := fake.Start(t.Context(), "127.0.0.1:0", replyKey)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	b.receiver = r
	return b
}

func (b *bench) webhooks() *webhook.Sender {
	path := filepath.Join(b.t.TempDir(), "secret")
	require.NoError(b.t, os.WriteFile(path, []byte(replyKey), 0o600))
	secret, err := config.NewSecret("file:" + path)
	require.NoError(b.t, err)
	s, err := webhook.NewSender(map[string]config.Webhook{
		"ci": {ReplyURL: b.receiver.URL(), ReplySecret: secret, AllowPrivate: true},
	})
	require.NoError(b.t, err)
	b.t.Cleanup(s.Close)
	return s
}

func (b *bench) deps() delivery.Deps {
	return delivery.Deps{
		Bus: b.Bus, Outbox: b.Store, Chats: b.Store, Limits: ratelimit.NewLocal(), Emitter: &b.events, Logger: servicetest.Logger(),
		Tracer: tracenoop.NewTracerProvider().Tracer(""), Meter: metricnoop.Meter{},
		Senders: map[string]channel.Sender{webhook.Platform: b.webhooks()},
	}
}

func (b *bench) start(change ...func(*delivery.Deps)) *delivery.Deliverer {
	b.t.Helper()
	deps := b.deps()
	for _, c := range change {
		c(&deps)
	}
	d, err := delivery.New(delivery.Config{ID: "egress-1", SendTimeout: 5 * time.Second, Parallel: 4}, deps)
	require.NoError(b.t, err)
	servicetest.Start(b.t, d)
	return d
}

// reply adds an outbox row by a command that admission answers.
func (b *bench) reply(conversation, uid, platform string, parts ...channel.Part) string {
	b.t.Helper()
	src := session.Source{Platform: "webhook", Account: "ci", ChatID: conversation, ChatType: "dm"}
	key := session.Key(src, session.DefaultOptions())
	target, err := json.Marshal(event.Address{Platform: platform, Account: "ci", ChatID: conversation})
	require.NoError(b.t, err)
	skey := session.SKey("default", key)
	_, err = b.Store.Admit(b.t.Context(), store.Admission{Messages: []store.AdmitMessage{{
		SKey: skey, Tenant: "default", SessionKey: key, AgentID: "default", RunClass: "default", UID: uid, Kind: store.KindCommand,
		Body: json.RawMessage(`{}`), SessionID: uuid.Must(uuid.NewV7()), RunID: uuid.Must(uuid.NewV7()), Traceparent: traceOf,
		Notice: &store.NewReply{Platform: platform, Target: target, Parts: channel.EncodeParts(parts...)},
	}}})
	require.NoError(b.t, err)
	return skey
}

func (b *bench) text(conversation, uid, text string) string {
	b.t.Helper()
	return b.reply(conversation, uid, webhook.Platform, channel.Part{Markdown: text})
}

func (b *bench) ring(platform, skey string, outSeq int64) {
	b.t.Helper()
	data, err := proto.Marshal(&deliveryv1.Doorbell{Skey: skey, OutSeq: outSeq})
	require.NoError(b.t, err)
	_, err = b.Bus.Publish(b.t.Context(), bus.Msg{
		Subject: bus.OutSubject(platform, skey), ID: fmt.Sprintf("%s:%d:%d", skey, outSeq, b.rings.Add(1)), Data: data,
	})
	require.NoError(b.t, err)
}

// sweep moves the store's clock and rings what is due, as the router's sweeper does.
func (b *bench) sweep(d time.Duration) int {
	b.t.Helper()
	b.ahead.Add(int64(d))
	due, err := b.Store.DueDeliveries(b.t.Context(), 100)
	require.NoError(b.t, err)
	for _, bell := range due {
		b.ring(bell.Platform, bell.SKey, bell.OutSeq)
	}
	return len(due)
}

func (b *bench) session(skey string) store.Session {
	b.t.Helper()
	s, err := b.Store.Session(b.t.Context(), skey)
	require.NoError(b.t, err)
	return s
}

func (b *bench) awaitSettled(skey string, outSeq int64) {
	b.t.Helper()
	await.True(b.t, soon, func() bool { return b.session(skey).OutSent == outSeq }, "row %d settled", outSeq)
}

// awaitOutcome: observers are told after a row is settled.
func (b *bench) awaitOutcome(typ event.Type, want string) {
	b.t.Helper()
	await.True(b.t, soon, func() bool { return len(b.events.outcomes(typ)) > 0 }, "%s", typ)
	require.Equal(b.t, []string{want}, b.events.outcomes(typ))
}

func (b *bench) awaitRequests(n int) {
	b.t.Helper()
	await.True(b.t, soon, func() bool { return len(b.receiver.Transcript()) == n }, "%d requests", n)
}

// awaitDrained waits until every doorbell is acknowledged: events are not published here, so nothing else is stored.
func (b *bench) awaitDrained() {
	b.t.Helper()
	await.True(b.t, soon, func() bool {
		info, err := b.Server.Server().Jsz(nil)
		return err == nil && info.Messages == 0
	}, "doorbells acknowledged")
}

func TestDeliver_KeepsTheOrderOfASessionWhateverRings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	var skey string
	var want []string
	for i := range 9 {
		want = append(want, fmt.Sprintf("reply %d", i+1))
		skey = b.text("room", fmt.Sprintf("m%d", i), want[i])
	}
	for _, outSeq := range []int64{5, 1, 1, 3, 9, 2} {
		b.ring(webhook.Platform, skey, outSeq)
	}
	b.awaitSettled(skey, 9)
	require.Equal(t, want, b.receiver.Shown("room"))
	require.Len(t, b.receiver.Transcript(), 9, "each was sent once")
	b.awaitDrained()
	await.True(t, soon, func() bool { return len(b.events.outcomes(event.ProcessingCompleted)) == 9 })
	require.Len(t, b.events.outcomes(event.ResponseSent), 9)
	require.Empty(t, b.events.outcomes(event.DeliveryFailed))
}

func TestDeliver_ServesManySessionsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.receiver.Answer(fake.Answer{Hang: true})
	b.start()
	b.ring(webhook.Platform, b.text("slow", "m", "never answered"), 1)
	b.awaitRequests(1)
	for i := range 20 {
		b.ring(webhook.Platform, b.text(fmt.Sprintf("room %d", i), "m", "hi"), 1)
	}
	b.awaitRequests(21)
}

func TestDeliver_RepeatsWhatWasNotSent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.receiver.Answer(fake.Answer{Status: http.StatusServiceUnavailable}, fake.Answer{
		Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"33"}},
	})
	b.start()
	skey := b.text("room", "m1", "one")
	b.text("room", "m2", "two")
	b.ring(webhook.Platform, skey, 1)
	b.awaitRequests(1)
	b.awaitDrained()
	require.Zero(t, b.session(skey).OutSent)
	require.Equal(t, 1, b.sweep(2*time.Second), "the row behind is not due before: it cannot be claimed anyway")
	b.awaitRequests(2)
	b.awaitDrained()
	require.Zero(t, b.session(skey).OutSent)
	b.sweep(40 * time.Second)
	b.awaitSettled(skey, 2)
	require.Equal(t, []string{"one", "two"}, b.receiver.Shown("room"))
	require.Equal(t, b.receiver.Transcript()[0].ID, b.receiver.Transcript()[2].ID)
}

func TestDeliver_GivesUpWhatIsRefusedAndGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	letters := make(chan bus.Msg, 1)
	sub, err := b.Bus.Listen(bus.DeadLetterSubject("out", webhook.Platform), letters)
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Close() })
	b.receiver.Answer(fake.Answer{Status: http.StatusGone})
	b.start()
	skey := b.text("room", "m1", "refused")
	b.text("room", "m2", "welcome")
	b.ring(webhook.Platform, skey, 1)
	b.awaitSettled(skey, 2)
	require.Equal(t, []string{"welcome"}, b.receiver.Shown("room"))
	b.awaitOutcome(event.DeliveryFailed, "dead")
	select {
	case m := <-letters:
		var told struct{ ID uuid.UUID }
		require.NoError(t, json.Unmarshal(m.Data, &told))
		const reason = "send: permanent (410): the receiver is gone"
		require.JSONEq(t, fmt.Sprintf(`{"id":%q,"skey":%q,"out_seq":1,"dkey":"m1:command","reason":%q}`, told.ID, skey, reason), string(m.Data))
		stored, err := b.Store.DeadLetter(t.Context(), told.ID)
		require.NoError(t, err)
		require.Equal(t, store.DeadKindDelivery, stored.Kind)
		require.Equal(t, skey+"/1", stored.Ref)
		require.Equal(t, reason, stored.Reason)
	case <-time.After(soon):
		t.Fatal("no dead letter")
	}
}

func TestDeliver_RepeatsAnUnknownOutcomeUnderTheSameKey(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]fake.Answer{
		"answer lost":    {Status: http.StatusBadGateway, Keep: true},
		"connection cut": {Reset: true, Keep: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.receiver.Answer(answer)
			b.start()
			skey := b.text("room", "m1", "once")
			b.ring(webhook.Platform, skey, 1)
			b.awaitRequests(1)
			b.awaitDrained()
			b.sweep(2 * time.Second)
			b.awaitSettled(skey, 1)
			require.Equal(t, []string{"once"}, b.receiver.Shown("room"))
			b.awaitOutcome(event.ResponseSent, "sent")
		})
	}
}

// plain is a platform without idempotency keys, which cuts at ten bytes and follows a script.
type plain struct {
	mu     sync.Mutex
	script []error
	seen   []string
	keys   []string
}

func (*plain) Capability() channel.Capability { return channel.Capability{MaxUnits: 10} }

func (*plain) Split(parts []channel.Part) []channel.Part {
	var out []channel.Part
	for _, p := range parts {
		for len(p.Markdown) > 10 {
			out = append(out, channel.Part{Markdown: p.Markdown[:10]})
			p.Markdown = p.Markdown[10:]
		}
		out = append(out, p)
	}
	return out
}

func (p *plain) Send(_ context.Context, s channel.Send) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.keys = append(p.seen, s.Target.ChatID+"|"+s.Part.Markdown), append(p.keys, s.IdemKey)
	var err error
	if len(p.script) > 0 {
		err, p.script = p.script[0], p.script[1:]
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("id%d", len(p.seen)), nil
}

func (p *plain) sends() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.seen...)
}

func failure(c channel.Class) error { return &channel.SendError{Class: c, Err: errors.New("scripted")} }

func (b *bench) startPlain(script ...error) *plain {
	b.t.Helper()
	p := &plain{script: script}
	b.start(func(d *delivery.Deps) { d.Senders = map[string]channel.Sender{plainName: p} })
	return p
}

func (b *bench) awaitSends(p *plain, want ...string) {
	b.t.Helper()
	await.True(b.t, soon, func() bool { return len(p.sends()) >= len(want) }, "%d sends", len(want))
	require.Equal(b.t, want, p.sends())
}

func TestDeliver_GoesOnWithThePartThatFailed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.startPlain(nil, failure(channel.NotSent))
	skey := b.reply("c", "m1", plainName, channel.Part{Markdown: "aaaaaaaaaabbbbbbbbbbcc"})
	b.ring(plainName, skey, 1)
	b.awaitSends(p, "c|aaaaaaaaaa", "c|bbbbbbbbbb")
	b.awaitDrained()
	b.sweep(2 * time.Second)
	b.awaitSettled(skey, 1)
	require.Equal(t, []string{"c|aaaaaaaaaa", "c|bbbbbbbbbb", "c|bbbbbbbbbb", "c|cc"}, p.sends())
	require.Equal(t, []string{"m1:command:1", "m1:command:2", "m1:command:2", "m1:command:3"}, p.keys)
}

func TestDeliver_TellsOnceThatTheRestIsLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.startPlain(nil, failure(channel.Permanent))
	skey := b.reply("c", "m1", plainName, channel.Part{Markdown: "aaaaaaaaaabbbbbbbbbbcc"})
	b.ring(plainName, skey, 1)
	b.awaitSettled(skey, 1)
	require.Equal(t, []string{"c|aaaaaaaaaa", "c|bbbbbbbbbb", "c|The rest of this reply could not be delivered."}, p.sends())
	b.awaitOutcome(event.ProcessingCompleted, "dead")
}

func TestDeliver_MakesAtMostTwoCopiesOnAPlainPlatform(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.startPlain(failure(channel.Unknown), failure(channel.Unknown))
	skey := b.reply("c", "m1", plainName, channel.Part{Markdown: "hi"})
	b.ring(plainName, skey, 1)
	b.awaitSends(p, "c|hi")
	b.awaitDrained()
	require.Zero(t, b.sweep(29*time.Second), "not at once")
	b.sweep(2 * time.Second)
	b.awaitSettled(skey, 1)
	require.Equal(t, []string{"c|hi", "c|hi"}, p.sends())
	b.awaitOutcome(event.DeliveryFailed, "unknown")
}

func TestDeliver_FollowsAMovedChat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.startPlain(&channel.SendError{Class: channel.Moved, MovedTo: "new", Err: errors.New("moved")})
	skey := b.reply("old", "m1", plainName, channel.Part{Markdown: "hi"})
	b.ring(plainName, skey, 1)
	b.awaitSettled(skey, 1)
	require.Equal(t, []string{"old|hi", "new|hi"}, p.sends())
}

func TestDeliver_HandsOnRowsOfOtherPlatforms(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other, err := b.Bus.Work(t.Context(), bus.OutQueue("other"))
	require.NoError(t, err)
	b.start()
	skey := b.text("room", "m1", "mine")
	b.reply("room", "m2", "other", channel.Part{Markdown: "theirs"})
	b.ring(webhook.Platform, skey, 1)
	bells, err := other.Fetch(t.Context(), 1, soon)
	require.NoError(t, err)
	require.Len(t, bells, 1)
	var bell deliveryv1.Doorbell
	require.NoError(t, proto.Unmarshal(bells[0].Msg().Data, &bell))
	require.Equal(t, int64(2), bell.GetOutSeq())
	claimed, err := b.Store.ClaimDeliveries(t.Context(), "other", []store.DeliveryClaim{{SKey: skey, OutSeq: 2}})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	require.Zero(t, claimed[0].Maybe)
}

// stuck is a store that takes no marks.
type stuck struct {
	store.Outbox
	tried chan struct{}
}

func (s stuck) MarkDeliveries(context.Context, []store.Mark) ([]store.Marked, error) {
	select {
	case s.tried <- struct{}{}:
	default:
	}
	return nil, store.ErrUnavailable
}

func TestDeliver_AfterACrashBetweenSendAndMarkSendsAgainUnderTheSameKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tried := make(chan struct{}, 1)
	deps := b.deps()
	deps.Outbox = stuck{Outbox: b.Store, tried: tried}
	first, err := delivery.New(delivery.Config{ID: "egress-1", SendTimeout: 5 * time.Second, Parallel: 4}, deps)
	require.NoError(t, err)
	require.NoError(t, first.Start(t.Context()))
	skey := b.text("room", "m1", "once")
	b.ring(webhook.Platform, skey, 1)
	<-tried
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, first.Stop(dead), context.Canceled)
	require.Zero(t, b.session(skey).OutSent)

	spans := tracetest.NewSpanRecorder()
	b.start(func(d *delivery.Deps) {
		d.Tracer = trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("")
	})
	require.Zero(t, b.sweep(30*time.Second), "the claim of the dead process still holds")
	require.Equal(t, 1, b.sweep(61*time.Second))
	b.awaitSettled(skey, 1)
	require.Len(t, b.receiver.Transcript(), 2)
	require.Equal(t, []string{"once"}, b.receiver.Shown("room"))

	await.True(t, soon, func() bool { return len(spans.Ended()) == 1 })
	span := spans.Ended()[0]
	require.Equal(t, "send webhook", span.Name())
	require.Contains(t, traceOf, span.SpanContext().TraceID().String())
	require.Contains(t, traceOf, span.Parent().SpanID().String())
}

func TestDeliver_ARowBehindAnUnmarkedOneMayGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tried := make(chan struct{}, 1)
	deps := b.deps()
	deps.Outbox = stuck{Outbox: b.Store, tried: tried}
	d, err := delivery.New(delivery.Config{ID: "egress-1", SendTimeout: 5 * time.Second, Parallel: 4}, deps)
	require.NoError(t, err)
	require.NoError(t, d.Start(t.Context()))
	skey := b.text("room", "m1", "one")
	b.text("room", "m2", "two")
	b.ring(webhook.Platform, skey, 1)
	<-tried
	b.ring(webhook.Platform, skey, 2)
	b.awaitRequests(2)
	require.Equal(t, []string{"one", "two"}, b.receiver.Shown("room"))
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, d.Stop(dead), context.Canceled)
}

func TestStop_FinishesWhatIsInHand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.receiver.Answer(fake.Answer{Hang: true})
	deps := b.deps()
	d, err := delivery.New(delivery.Config{ID: "e", SendTimeout: 200 * time.Millisecond, Parallel: 4}, deps)
	require.NoError(t, err)
	require.NoError(t, d.Stop(t.Context()), "before Start")
	require.NoError(t, d.Start(t.Context()))
	skey := b.text("room", "m1", "one")
	b.ring(webhook.Platform, skey, 1)
	b.awaitRequests(1)
	require.NoError(t, d.Stop(t.Context()))
	require.NoError(t, d.Stop(t.Context()), "twice")
	require.Equal(t, 1, b.sweep(2*time.Second), "the send timed out and was put off before Stop returned")
}

func TestDeliver_SurvivesARestartOfTheBroker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	skey := b.text("room", "m1", "one")
	b.ring(webhook.Platform, skey, 1)
	b.awaitSettled(skey, 1)
	require.NoError(t, b.Server.Restart())
	await.NoError(t, soon, func() error { return b.Bus.Ready(t.Context()) })
	b.text("room", "m2", "two")
	await.True(t, soon, func() bool {
		b.sweep(91 * time.Second)
		return b.session(skey).OutSent == 2
	})
	require.Equal(t, []string{"one", "two"}, b.receiver.Shown("room"))
}
