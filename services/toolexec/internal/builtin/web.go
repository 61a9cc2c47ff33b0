package builtin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
)

// Web is the way to the outside.
type Web struct {
	Allow AllowList
	// Resolver finds hosts; nil is the system's.
	Resolver *net.Resolver
}

// client returns a client for one request. Nothing is shared between calls: no connections, cookies or proxies.
func (w Web) client() *http.Client {
	return &http.Client{
		Transport: guarded{web: w, next: &http.Transport{
			DialContext:            w.dial,
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: 64 << 10,
			ForceAttemptHTTP2:      true,
		}},
		CheckRedirect: checkRedirect,
	}
}

// guarded checks every request against the allow-list, each hop of a redirect too.
type guarded struct {
	web  Web
	next http.RoundTripper
}

// RoundTrip answers with a *BlockedError before anything is sent or resolved.
func (g guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := checkURL(req.URL.String()); err != nil {
		return nil, err
	}
	private, err := g.web.Allow.checkURL(req.URL)
	if err != nil {
		return nil, err
	}
	ctx := context.WithValue(req.Context(), privateKey{}, private)
	return g.next.RoundTrip(req.WithContext(ctx))
}

// privateKey marks in a context whether private addresses may be dialled.
type privateKey struct{}

// dial checks the address that is really connected to: a name that was public when asked and is private now (DNS
// rebinding) gets no connection.
func (w Web) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Resolver: w.Resolver, Timeout: httpTimeout}
	if private, _ := ctx.Value(privateKey{}).(bool); !private {
		d.Control = func(_, address string, _ syscall.RawConn) error { return checkPublic(addr, address) }
	}
	return d.DialContext(ctx, network, addr)
}

func checkPublic(asked, address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	if !isPublic(ap.Addr()) {
		return &BlockedError{Place: asked, Reason: "its address is not public, list host:port to allow it"}
	}
	return nil
}

// checkRedirect gives a second host none of the headers that were meant for the first.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return errors.New("too many redirects")
	}
	if req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
		req.Header = http.Header{"User-Agent": {userAgent}}
	}
	return nil
}
