package delivery

import (
	"sync"
	"time"

	"github.com/hermes-runtime/hermes/pkg/event"
)

const (
	// An account that is not accepted is left alone for a time that doubles: an operator has to act.
	firstPause, maxPause = time.Minute, time.Hour
	// probeTime is how long one send may take that finds out whether the account is accepted again.
	probeTime = time.Minute
)

// accounts remembers which accounts their platforms do not accept.
type accounts struct {
	mu     sync.Mutex
	paused map[account]*pausedAccount
}

type account struct{ platform, id string }

// pausedAccount is left alone until a moment, for the last time as long as last. probing: one send is finding out.
type pausedAccount struct {
	until   time.Time
	last    time.Duration
	probing bool
}

func accountOf(target event.Address) account { return account{target.Platform, target.Account} }

// wait is how long nothing is sent for a; 0: now. When a pause is over, one caller may try, and the others wait for it.
func (s *accounts) wait(a account, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.paused[a]
	if p == nil {
		return 0
	}
	if wait := p.until.Sub(now); wait > 0 {
		return wait
	}
	p.probing, p.until = true, now.Add(probeTime)
	return 0
}

// refuse pauses a, longer each time; first: it was not paused before. Sends that were under way when the pause began do
// not make it longer.
func (s *accounts) refuse(a account, now time.Time) (pause time.Duration, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.paused[a]
	switch {
	case p == nil:
		first, p = true, &pausedAccount{last: firstPause}
		s.paused[a] = p
	case !p.probing:
		return p.until.Sub(now), false
	default:
		p.last = min(2*p.last, maxPause)
	}
	p.probing, p.until = false, now.Add(p.last)
	return p.last, first
}

// accept ends the pause of a and reports whether there was one.
func (s *accounts) accept(a account) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, paused := s.paused[a]
	delete(s.paused, a)
	return paused
}
