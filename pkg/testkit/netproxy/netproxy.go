// Package netproxy is a TCP proxy for tests that simulates outages between a client and its server.
package netproxy

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

type mode int

const (
	open mode = iota
	muted
	cut
)

// Proxy forwards connections to a target:
//
//	open --Mute--> muted --Restore--> open      answers are lost, requests arrive
//	any  --Cut---> cut   --Restore--> open      connections end, new ones are refused
//
// All methods are safe for concurrent use.
type Proxy struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	mode  mode
	conns map[net.Conn]struct{}
}

// New starts a proxy to target (host:port), which ends with the test.
func New(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p, err := Start(target)
	require.NoError(tb, err)
	tb.Cleanup(p.Close)
	return p
}

// Start starts a proxy to target (host:port) on a free port.
func Start(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: l, conns: make(map[net.Conn]struct{})}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is the proxy's own host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut ends all connections and refuses new ones.
func (p *Proxy) Cut() { p.change(cut) }

// Mute loses everything that the target sends from now on; what clients send still arrives.
func (p *Proxy) Mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = muted
}

// Restore works as before. Connections that lost something end, as a part of a stream is of no use.
func (p *Proxy) Restore() { p.change(open) }

// Close ends the proxy and waits for its goroutines.
func (p *Proxy) Close() {
	p.change(cut)
	_ = p.listener.Close() // an error says that it is closed already
	p.wg.Wait()
}

func (p *Proxy) change(to mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == muted || to == cut {
		for c := range p.conns {
			_ = c.Close() // its pipe may have closed it first
		}
	}
	p.mode = to
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	if !p.add(client) {
		return
	}
	defer p.remove(client)
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return // a target that is down looks like a connection that ends
	}
	defer server.Close()
	if !p.add(server) {
		return
	}
	defer p.remove(server)

	var pipes sync.WaitGroup
	pipes.Go(func() { p.pipe(client, server, true) })
	pipes.Go(func() { p.pipe(server, client, false) })
	pipes.Wait()
}

// pipe copies until one side ends, and then ends both.
func (p *Proxy) pipe(dst, src net.Conn, mutable bool) {
	defer dst.Close()
	defer src.Close()
	var w io.Writer = dst
	if mutable {
		w = muter{p, dst}
	}
	_, _ = io.Copy(w, src) // either side may end the connection at any time
}

func (p *Proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == cut {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) remove(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// muter hides ReadFrom of the connection, so that every chunk passes through Write.
type muter struct {
	p   *Proxy
	dst net.Conn
}

func (m muter) Write(b []byte) (int, error) {
	m.p.mu.Lock()
	lost := m.p.mode == muted
	m.p.mu.Unlock()
	if lost {
		return len(b), nil
	}
	return m.dst.Write(b)
}
