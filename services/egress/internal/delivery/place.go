package delivery

import (
	"sync"

	"github.com/hermes-runtime/hermes/pkg/event"
)

// maxPlaces bounds what is remembered of each kind; beyond it all is forgotten and found out again.
const maxPlaces = 10_000

// places remembers, for this process, which chats have moved and which threads are gone: what was learned at the price of
// a refused send is not learned again with every message.
type places struct {
	mu    sync.Mutex
	moved map[chat]string
	gone  map[thread]struct{}
}

type chat struct{ platform, account, id string }

type thread struct {
	chat
	id string
}

func newPlaces() *places { return &places{moved: map[chat]string{}, gone: map[thread]struct{}{}} }

func chatOf(a event.Address) chat { return chat{a.Platform, a.Account, a.ChatID} }

// current is where a is now.
func (p *places) current(a event.Address) event.Address {
	p.mu.Lock()
	defer p.mu.Unlock()
	if to, ok := p.moved[chatOf(a)]; ok {
		a.ChatID = to
	}
	if _, gone := p.gone[thread{chatOf(a), a.ThreadID}]; gone {
		a.ThreadID = ""
	}
	return a
}

func (p *places) move(a event.Address, to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.moved) >= maxPlaces {
		clear(p.moved)
	}
	p.moved[chatOf(a)] = to
}

func (p *places) drop(a event.Address) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.gone) >= maxPlaces {
		clear(p.gone)
	}
	p.gone[thread{chatOf(a), a.ThreadID}] = struct{}{}
}
