package follow

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// Frames is where frames and snapshots come from.
type Frames interface {
	Listen(subject string, ch chan<- bus.Msg) (bus.Subscription, error)
	Request(ctx context.Context, m bus.Msg) (bus.Msg, error)
}

// Ending is the final event of what is followed; ok is false while there is none.
type Ending func(ctx context.Context) (e Event, ok bool, err error)

// Deps are what a run is followed with.
type Deps struct {
	Bus    Frames
	Logger *slog.Logger
	Timing Timing
	Ending Ending
}

// Timing says how often and how long.
type Timing struct {
	// Look is the time between two looks for the ending.
	Look time.Duration
	// Ask bounds a request for a snapshot. Renew is the time after which one is asked for although no frame is missing:
	// a worker streams for those who asked within 60 s.
	Ask, Renew time.Duration
	// Settle bounds the wait for frames that were sent before the end of a run and arrive behind the news of it.
	Settle time.Duration
}

// DefaultTiming suits production.
func DefaultTiming() Timing {
	return Timing{Look: 2 * time.Second, Ask: time.Second, Renew: 30 * time.Second, Settle: 200 * time.Millisecond}
}

// Target is what is followed: a message, or a run. One of UID and RunID is set.
type Target struct {
	SKey  string
	UID   string
	RunID uuid.UUID
}

// frameBuffer is how many frames wait for a client that reads slowly; more are dropped and asked for again.
const frameBuffer = 256

// Feed yields the events of one target. It has to be closed and is used by one goroutine.
type Feed struct {
	// FromStart: the feed was opened before its message was published, so every frame of the run is for it.
	FromStart bool

	deps   Deps
	target Target
	cursor cursor
	frames chan bus.Msg
	sub    bus.Subscription
	watch  *watch
	asked  time.Time
}

// Open subscribes to the frames of t's session: nothing that is sent from now on is missed. from is the place of the
// last event that the caller has, nil if it has none. While the broker is down the feed tells the end only.
func Open(ctx context.Context, d Deps, t Target, from *Position) *Feed {
	f := &Feed{deps: d, target: t, cursor: cursor{uid: t.UID}, frames: make(chan bus.Msg, frameBuffer), watch: newWatch(d, t.SKey)}
	if t.RunID != uuid.Nil {
		f.cursor.runID = t.RunID.String()
	}
	if from != nil {
		f.cursor.at, f.cursor.shown, f.cursor.behind = *from, true, true
	}
	f.listen(ctx)
	return f
}

func (f *Feed) listen(ctx context.Context) {
	sub, err := f.deps.Bus.Listen(bus.DeltaSubject(f.target.SKey), f.frames)
	if err != nil { // tried again with the next refresh
		f.deps.Logger.WarnContext(ctx, "frames not available", "skey", f.target.SKey, "err", err)
		return
	}
	f.sub = sub
}

// Close ends the subscription.
func (f *Feed) Close() {
	if f.sub == nil {
		return
	}
	if err := f.sub.Close(); err != nil { // nobody reads its frames any more
		f.deps.Logger.Debug("close subscription", "skey", f.target.SKey, "err", err)
	}
}

// Run calls emit for each event in order and returns nil after the final one. Otherwise it returns the error of emit or
// the cause of the end of ctx.
func (f *Feed) Run(ctx context.Context, emit func(Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { f.watch.run(ctx) })
	defer looking.Wait()
	defer cancel()

	ticker := time.NewTicker(f.deps.Timing.Look)
	defer ticker.Stop()
	err := f.proceed(ctx, emit, nil, ask)
	for err == nil {
		select {
		case e := <-f.watch.final:
			return f.complete(ctx, emit, e)
		case m := <-f.frames:
			err = f.receive(ctx, emit, m)
		case <-ticker.C:
			err = f.refresh(ctx, emit)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return err
}

// complete emits what was sent before the end and is still on its way, then the final event.
func (f *Feed) complete(ctx context.Context, emit func(Event) error, final Event) error {
	settled := time.NewTimer(f.deps.Timing.Settle)
	defer settled.Stop()
	for f.expectsFrames(final) {
		select {
		case m := <-f.frames:
			if err := f.receive(ctx, emit, m); err != nil {
				return err
			}
		case <-settled.C:
			return emit(final)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return emit(final)
}

// expectsFrames reports whether the run has sent frames that this feed has not seen. Commands have no run and no frames.
func (f *Feed) expectsFrames(final Event) bool {
	begun := f.FromStart || f.cursor.at != Position{}
	return f.sub != nil && final.RunID != "" && begun && !f.cursor.ended
}

// refresh mends what does not mend itself.
func (f *Feed) refresh(ctx context.Context, emit func(Event) error) error {
	if f.sub == nil {
		f.listen(ctx)
	}
	if !f.cursor.lost() && time.Since(f.asked) < f.deps.Timing.Renew {
		return nil
	}
	return f.proceed(ctx, emit, nil, ask)
}

func (f *Feed) receive(ctx context.Context, emit func(Event) error, m bus.Msg) error {
	var frame runv1.Frame
	if err := proto.Unmarshal(m.Data, &frame); err != nil {
		f.deps.Logger.DebugContext(ctx, "frame unreadable", "skey", f.target.SKey, "err", err)
		return nil
	}
	events, next := f.cursor.frame(&frame)
	return f.proceed(ctx, emit, events, next)
}

// proceed emits events and does what the cursor needs next.
func (f *Feed) proceed(ctx context.Context, emit func(Event) error, events []Event, next action) error {
	if next == ask {
		more, then := f.cursor.snapshot(f.ask(ctx))
		events, next = append(events, more...), then
	}
	for _, e := range events {
		if err := emit(e); err != nil {
			return err
		}
	}
	if next == look {
		f.watch.kick()
	}
	return nil
}

// ask requests what comes behind the cursor. No answer is an empty one: no worker holds a run of the session, and the
// store knows whether that is because it has ended.
func (f *Feed) ask(ctx context.Context) *runv1.SnapshotReply {
	f.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, f.deps.Timing.Ask)
	defer cancel()
	var reply runv1.SnapshotReply
	data, err := proto.Marshal(&runv1.SnapshotRequest{Gen: f.cursor.at.Gen, N: f.cursor.at.N})
	if err == nil {
		var m bus.Msg
		if m, err = f.deps.Bus.Request(ctx, bus.Msg{Subject: bus.SnapshotSubject(f.target.SKey), Data: data}); err == nil {
			err = proto.Unmarshal(m.Data, &reply)
		}
	}
	if err != nil {
		f.deps.Logger.DebugContext(ctx, "no snapshot", "skey", f.target.SKey, "err", err)
		return nil
	}
	return &reply
}
