package builtin

import (
	"sync"
	"time"
	"unicode/utf8"
)

// progressPause joins output that comes in small pieces.
const progressPause = 100 * time.Millisecond

// progress shows output while a command runs, in its own goroutine, so that a slow reader does not slow the command
// down. It stops showing after budget bytes: the result has the rest.
type progress struct {
	send func(string)

	mu      sync.Mutex
	pending []byte
	budget  int

	wake chan struct{}
	quit chan struct{}
	done chan struct{}
}

func startProgress(send func(string), budget int) *progress {
	p := &progress{
		send: send, budget: budget,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go p.run()
	return p
}

// Write never fails and never waits.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	room := min(len(b), p.budget)
	p.budget -= room
	p.pending = append(p.pending, b[:room]...)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return len(b), nil
}

// stop shows what is left and returns when nothing will be sent any more.
func (p *progress) stop() {
	close(p.quit)
	<-p.done
}

func (p *progress) run() {
	defer close(p.done)
	pause := time.NewTicker(progressPause)
	defer pause.Stop()
	for {
		select {
		case <-p.wake:
			p.flush(false)
		case <-p.quit:
			p.flush(true)
			return
		}
		select {
		case <-pause.C:
		case <-p.quit:
		}
	}
}

// flush sends what is pending; a character that is not complete yet waits for its rest, unless this is the end.
func (p *progress) flush(end bool) {
	p.mu.Lock()
	n := len(p.pending)
	if !end {
		n -= incomplete(p.pending)
	}
	text := clean(p.pending[:n])
	p.pending = append(p.pending[:0], p.pending[n:]...)
	p.mu.Unlock()
	if text != "" {
		p.send(text)
	}
}

// incomplete returns how many bytes at the end begin a character without finishing it.
func incomplete(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
