package live

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/lease"
)

const (
	// holdEvery is the time between two renewals of the hold.
	holdEvery = 3 * time.Second
	// holdTime is how long after the call that took it a request may begin: it ends before the hold does.
	holdTime = lease.PreviewTTL - callTimeout
	// keep is after how long a preview that is no message is shown again: such ones fade, Telegram's after 30 s.
	keep = 20 * time.Second
	// maxFailures is how many previews in a row may fail before there are no more.
	maxFailures = 3
)

// preview shows the answer of one run while it is being written. It belongs to the goroutine of its show; a nil preview
// shows nothing.
type preview struct {
	*show
	previewer channel.Previewer
	every     time.Duration
	// held is the moment before the call that took or renewed the hold.
	held time.Time
	// id is the message that shows the answer, shown the text that it shows.
	id, shown string
	// sent is the begin of the last request, due the moment at which the timer of the show fires; zero: none, never.
	sent, due time.Time
	failures  int
	off       bool
}

func newPreview(s *show, p channel.Previewer) *preview {
	every := p.PreviewEvery(s.target)
	if every <= 0 { // none are shown in this chat
		return nil
	}
	return &preview{show: s, previewer: p, every: every}
}

// hold takes or renews the right to show the session.
func (p *preview) hold(ctx context.Context) {
	if p == nil || p.off {
		return
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	begin := time.Now()
	ok, err := p.deps.Previews.HoldPreview(call, p.skey, p.cfg.ID)
	switch {
	case err != nil: // what is held is held until its time is over
		p.deps.Logger.DebugContext(ctx, "preview not held", "skey", p.skey, "err", err)
	case !ok:
		p.held = time.Time{}
	case p.holds() || p.resume(call):
		p.held = begin
	}
}

func (p *preview) holds() bool { return time.Since(p.held) < holdTime }

// resume goes on with what others, or this process before, have shown. It reports whether the run goes on. The order
// matters: once the hold is there, whoever sends the final text asks this process to stop.
func (p *preview) resume(ctx context.Context) bool {
	_, rests, err := p.resting(ctx)
	var ids []string
	if err == nil && !rests {
		ids, err = p.deps.Store.Previews(ctx, p.skey, p.runID)
	}
	if err != nil {
		p.deps.Logger.DebugContext(ctx, "run not read", "skey", p.skey, "run_id", p.runID.String(), "err", err)
	}
	if err != nil || rests {
		return false
	}
	if len(ids) > 0 && p.id != ids[len(ids)-1] {
		p.id, p.shown = ids[len(ids)-1], ""
	}
	return true
}

// drop gives up the hold, unless the next run of the session is shown here already.
func (p *preview) drop(ctx context.Context) {
	if !p.alone(p.show) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := p.deps.Previews.DropPreview(ctx, p.skey, p.cfg.ID); err != nil { // it ends by itself
		p.deps.Logger.DebugContext(ctx, "preview not dropped", "skey", p.skey, "err", err)
	}
}

// recent reports whether there was a preview within d.
func (p *preview) recent(d time.Duration) bool { return p != nil && time.Since(p.sent) < d }

// expect sets the timer for text that has changed, unless it fires before that anyway.
func (p *preview) expect(timer *time.Timer) {
	if p == nil || p.off {
		return
	}
	wait := gather
	if !p.sent.IsZero() {
		wait = max(time.Until(p.sent.Add(p.every)), 0)
	}
	if at := time.Now().Add(wait); p.due.IsZero() || at.Before(p.due) {
		p.due = at
		timer.Reset(wait)
	}
}

// refresh shows the newest text and sets the timer, if there is a reason to come back. It never waits for a rate.
func (p *preview) refresh(ctx context.Context, timer *time.Timer) {
	p.due = time.Time{}
	if again := p.update(ctx); again > 0 && !p.off {
		p.due = time.Now().Add(again)
		timer.Reset(again)
	}
}

// update returns when to come back, 0 for never.
func (p *preview) update(ctx context.Context) time.Duration {
	text := p.current()
	fading := p.id == "" && !p.recent(keep)
	switch {
	case p.off, strings.TrimSpace(text) == "":
		return 0
	case text == p.shown && p.id != "":
		return 0
	case text == p.shown && !fading:
		return keep
	case !p.holds():
		return p.every
	}
	if wait := p.deps.Gate.Spare(ctx, p.sender, p.target); wait > 0 {
		return max(wait, p.every)
	}
	p.sent = time.Now()
	p.send(ctx, text)
	return p.every
}

func (p *preview) send(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	id, err := p.previewer.Preview(ctx, channel.Preview{Target: p.target, RunID: p.runID.String(), Text: text, ID: p.id})
	if err != nil {
		p.failed(ctx, err)
		return
	}
	p.failures, p.shown = 0, text
	if id == "" || id == p.id {
		return
	}
	p.id = id
	ctx, cancelNote := context.WithTimeout(context.WithoutCancel(ctx), callTimeout) // known or not, it is there
	defer cancelNote()
	if err := p.deps.Store.NotePreview(ctx, p.skey, p.runID, id, p.cfg.ID); err != nil {
		p.deps.Logger.WarnContext(ctx, "preview not noted", "skey", p.skey, "run_id", p.runID.String(), "err", err)
	}
}

// failed decides whether there are more previews.
func (p *preview) failed(ctx context.Context, err error) {
	p.deps.Logger.DebugContext(ctx, "preview not shown", "skey", p.skey, "run_id", p.runID.String(), "err", err)
	p.deps.Gate.Freeze(ctx, p.sender, p.target, err)
	e, _ := errors.AsType[*channel.SendError](err)
	if e != nil && e.RetryAfter > 0 {
		return
	}
	p.failures++
	switch class := channel.ClassOf(err); {
	case class == channel.Credential, class == channel.Moved, e != nil && e.ThreadGone:
		p.off = true // the final text finds out where to go
	case class == channel.Unknown && p.id == "":
		p.off = true // there may be a message by now, and another try would make a second one
	default:
		p.off = p.failures >= maxFailures
	}
}
