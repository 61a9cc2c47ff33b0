package live

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/follow"
)

const (
	// callTimeout bounds a request to a platform or to a server. A preview is not cut short by the end of its show: what
	// was sent has to be known.
	callTimeout = 4 * time.Second
	// lookEvery is the time between two looks whether the run still works, while no frame says so.
	lookEvery = 5 * time.Second
	// gather is how long the first words wait for more, so that the first preview is more than one word.
	gather = 300 * time.Millisecond
	// never is longer than a run.
	never = 24 * time.Hour
	// maxText bounds what is kept of an answer; no message shows more.
	maxText = 64 << 10
)

// show is what one chat sees of one run.
type show struct {
	*Watcher
	skey   string
	runID  uuid.UUID
	target event.Address
	sender channel.Sender
	// typer is nil where there is no typing.
	typer channel.Typer
	// preview is nil where there are no previews.
	preview *preview

	// changed says that there is new text.
	changed chan struct{}

	mu sync.Mutex
	// text is that of the current step.
	text strings.Builder
	// cancel ends the show, nil before it runs.
	cancel context.CancelFunc
	// askers want to know when it has ended; over: it has.
	askers []string
	over   bool
}

// newShow returns nil if the platform can show nothing.
func newShow(w *Watcher, ev *event.Lifecycle, runID uuid.UUID) *show {
	s := &show{
		Watcher: w, skey: ev.SKey, runID: runID, target: ev.Address, sender: w.deps.Senders[ev.Address.Platform],
		changed: make(chan struct{}, 1),
	}
	if t, ok := s.sender.(channel.Typer); ok && t.TypingEvery() > 0 {
		s.typer = t
	}
	if p, ok := s.sender.(channel.Previewer); ok && w.deps.Previews != nil {
		s.preview = newPreview(s, p)
	}
	if s.typer == nil && s.preview == nil {
		return nil
	}
	return s
}

// run shows the run until it rests or ends, or somebody asks to stop.
func (s *show) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer s.finish(ctx)
	defer cancel()
	if !s.started(cancel) {
		return
	}
	feed := follow.Open(ctx, follow.Deps{
		Bus: s.deps.Bus, Logger: s.deps.Logger, Ending: s.resting,
		Timing: follow.Timing{Look: lookEvery, Ask: time.Second, Renew: 30 * time.Second},
	}, follow.Target{SKey: s.skey, RunID: s.runID}, nil)
	defer feed.Close()
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	over := make(chan struct{})
	following.Go(func() {
		defer close(over)
		_ = feed.Run(ctx, s.take) // its end is that of the run or of ctx
	})
	s.present(ctx, over)
}

// started notes how to end the show; false: somebody has asked for it already.
func (s *show) started(cancel context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
	return len(s.askers) == 0
}

// stop ends the show. Who listens on reply is told when nothing of it is on its way any more; false: it is over.
func (s *show) stop(reply string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.askers = append(s.askers, reply)
	if s.cancel != nil {
		s.cancel()
	}
	return true
}

// finish tells who asked, and lets others show the session.
func (s *show) finish(ctx context.Context) {
	ctx = context.WithoutCancel(ctx) // it has ended, and others wait for this
	s.mu.Lock()
	s.over = true
	askers := s.askers
	s.mu.Unlock()
	id := ""
	if s.preview != nil {
		id = s.preview.id
	}
	for _, reply := range askers {
		s.stopped(ctx, reply, id)
	}
	if s.preview != nil {
		s.preview.drop(ctx)
	}
}

// resting says that the run has ended or waits: nobody writes then. A run that goes on later says so by another event.
func (s *show) resting(ctx context.Context) (follow.Event, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	run, err := s.deps.Store.Run(ctx, s.runID)
	if err != nil {
		return follow.Event{}, false, err // logged by the feed
	}
	works := run.State == store.RunRunning || run.State == store.RunQueued
	return follow.Event{Kind: follow.Done}, !works, nil
}

// take keeps the text of the current step: what came before was the preamble of tool calls, or of an attempt that was
// replaced.
func (s *show) take(e follow.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case follow.Step, follow.Reset:
		s.text.Reset()
	case follow.Text:
		if s.text.Len() < maxText {
			s.text.WriteString(e.Text)
		}
		select {
		case s.changed <- struct{}{}:
		default: // it knows
		}
	default: // tools are not shown
	}
	return nil
}

func (s *show) current() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// present types and previews, one request at a time, until over is closed or ctx ends.
func (s *show) present(ctx context.Context, over <-chan struct{}) {
	typing, stopTyping := ticks(s.typer != nil, func() time.Duration { return s.typer.TypingEvery() })
	defer stopTyping()
	holding, stopHolding := ticks(s.preview != nil, func() time.Duration { return holdEvery })
	defer stopHolding()
	due := time.NewTimer(never)
	defer due.Stop()
	s.typing(ctx)
	s.preview.hold(ctx)
	for {
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-typing:
			s.typing(ctx)
		case <-holding:
			s.preview.hold(ctx)
		case <-s.changed:
			s.preview.expect(due)
		case <-due.C:
			s.preview.refresh(ctx, due)
		}
	}
}

// ticks returns the channel of a ticker, or nil if there is nothing to do.
func ticks(wanted bool, every func() time.Duration) (<-chan time.Time, func()) {
	if !wanted {
		return nil, func() {}
	}
	t := time.NewTicker(every())
	return t.C, t.Stop
}

// typing shows that somebody is at work, unless a preview has just shown it. It never waits.
func (s *show) typing(ctx context.Context) {
	if s.typer == nil || s.preview.recent(s.typer.TypingEvery()) || s.deps.Gate.Spare(ctx, s.sender, s.target) > 0 {
		return
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.typer.Typing(call, s.target); err != nil && ctx.Err() == nil {
		s.deps.Gate.Freeze(ctx, s.sender, s.target, err)
		s.deps.Logger.DebugContext(ctx, "typing not shown", "skey", s.skey, "run_id", s.runID.String(), "err", err)
	}
}
