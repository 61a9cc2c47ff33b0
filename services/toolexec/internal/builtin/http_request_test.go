package builtin

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/hermes-runtime/hermes/pkg/tool"
)

// echo answers with what it was asked.
func echo(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(w, "%s %s token=%s agent=%s body=%s", r.Method, r.URL, r.Header.Get("X-Token"), r.UserAgent(), body)
	}))
	t.Cleanup(s.Close)
	return s
}

func hostOf(s *httptest.Server) string { return s.Listener.Addr().String() }

func request(t *testing.T, web Web, arguments string) Result {
	t.Helper()
	r, err := web.run(t.Context(), newCall(arguments))
	require.NoError(t, err)
	return r
}

func allowing(hosts ...string) Web { return Web{Allow: NewAllowList(hosts)} }

func TestHTTPRequest_SendsWhatItIsTold(t *testing.T) {
	t.Parallel()
	s := echo(t)
	r := request(t, allowing(hostOf(s)),
		`{"url":"`+s.URL+`/a?b=c","method":"post","headers":{"x-token":"t"},"body":"hi"}`)
	require.Equal(t, tool.OK, r.Outcome)
	require.Contains(t, r.Content, "HTTP/1.1 200 OK\n")
	require.Contains(t, r.Content, "Content-Type: text/plain")
	require.True(t, strings.HasSuffix(r.Content, "\nPOST /a?b=c token=t agent=hermes-toolexec body=hi"), r.Content)
}

func TestHTTPRequest_RefusesBadArguments(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		`{}`:                                        "argument url: scheme",
		`{"url":"ftp://example.com"}`:               `argument url: scheme "ftp"`,
		`{"url":"http:///x"}`:                       "argument url: has no host",
		`{"url":"http://u:p@example.com"}`:          "argument url: holds a user name",
		`{"url":"http://a","method":"CONNECT"}`:     "argument method:",
		`{"url":"http://a","headers":{"host":"b"}}`: "argument headers: host cannot be set",
		`{"url":7}`:                                 "argument url: number is not a string",
		`{"url":"http://a","uri":1}`:                `arguments: unknown field "uri"`,
	} {
		r := request(t, allowing("*"), arguments)
		require.Equal(t, tool.Error, r.Outcome, arguments)
		require.Contains(t, r.Content, want, arguments)
	}
}

func TestHTTPRequest_HostThatIsNotListedIsDenied(t *testing.T) {
	t.Parallel()
	s := echo(t)
	r := request(t, allowing("example.com"), `{"url":"`+s.URL+`"}`)
	require.Equal(t, tool.Denied, r.Outcome)
	require.Equal(t, hostOf(s)+" is blocked by allow_list: it is not in toolexec.allow_hosts", r.Content)
}

func TestHTTPRequest_PrivateAddressNeedsItsPortListed(t *testing.T) {
	t.Parallel()
	s := echo(t)
	for _, web := range []Web{allowing("*"), allowing("*", "127.0.0.1")} {
		r := request(t, web, `{"url":"`+s.URL+`"}`)
		require.Equal(t, tool.Denied, r.Outcome)
		require.Contains(t, r.Content, "blocked by allow_list: its address is not public")
	}
	r := request(t, allowing("localhost"), `{"url":"http://localhost/"}`)
	require.Equal(t, tool.Denied, r.Outcome, r.Content)
}

// nameServer answers the first question about a name with a public address and every other one with loopback.
func nameServer(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		answerAll(conn)
	}()
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		<-done
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func answerAll(conn net.PacketConn) {
	addresses := [][4]byte{{93, 184, 216, 34}, {127, 0, 0, 1}}
	asked := 0
	buf := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		answer := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true}, Questions: m.Questions}
		if q.Type == dnsmessage.TypeA {
			answer.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
				Body:   &dnsmessage.AResource{A: addresses[min(asked, 1)]},
			}}
			asked++
		}
		packed, err := answer.Pack()
		if err != nil {
			return
		}
		if _, err := conn.WriteTo(packed, from); err != nil {
			return
		}
	}
}

func TestHTTPRequest_NameThatTurnsPrivateIsDenied(t *testing.T) {
	t.Parallel()
	s := echo(t)
	port := s.Listener.Addr().(*net.TCPAddr).Port
	resolver := nameServer(t)
	first, err := resolver.LookupHost(t.Context(), "rebind.test.")
	require.NoError(t, err)
	require.Equal(t, []string{"93.184.216.34"}, first)
	arguments := fmt.Sprintf(`{"url":"http://rebind.test.:%d/"}`, port)
	r := request(t, Web{Allow: NewAllowList([]string{"*"}), Resolver: resolver}, arguments)
	require.Equal(t, tool.Denied, r.Outcome, r.Content)
	require.Contains(t, r.Content, "blocked by allow_list: its address is not public")
	r = request(t, Web{Allow: NewAllowList([]string{fmt.Sprintf("rebind.test:%d", port)}), Resolver: resolver}, arguments)
	require.Equal(t, tool.OK, r.Outcome, r.Content)
}

func redirecting(t *testing.T, to func(r *http.Request) string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to(r), http.StatusFound)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestHTTPRequest_RedirectToAHostThatIsNotListedIsDenied(t *testing.T) {
	t.Parallel()
	target := echo(t)
	s := redirecting(t, func(*http.Request) string { return target.URL })
	r := request(t, allowing(hostOf(s)), `{"url":"`+s.URL+`"}`)
	require.Equal(t, tool.Denied, r.Outcome)
	require.Contains(t, r.Content, hostOf(target)+" is blocked by allow_list")
}

func TestHTTPRequest_RedirectToAnotherHostCarriesNoHeaders(t *testing.T) {
	t.Parallel()
	target := echo(t)
	s := redirecting(t, func(*http.Request) string { return target.URL })
	r := request(t, allowing(hostOf(s), hostOf(target)), `{"url":"`+s.URL+`","headers":{"X-Token":"secret"}}`)
	require.Equal(t, tool.OK, r.Outcome)
	require.Contains(t, r.Content, "GET / token= agent=hermes-toolexec")
}

func TestHTTPRequest_RedirectsEnd(t *testing.T) {
	t.Parallel()
	var hops atomic.Int32
	s := redirecting(t, func(*http.Request) string { return fmt.Sprintf("/%d", hops.Add(1)) })
	r := request(t, allowing(hostOf(s)), `{"url":"`+s.URL+`"}`)
	require.Equal(t, tool.Error, r.Outcome)
	require.Contains(t, r.Content, "too many redirects")
	require.EqualValues(t, maxRedirects+1, hops.Load())
}

func answering(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

func TestHTTPRequest_ErrorStatusIsAnErrorWithItsBody(t *testing.T) {
	t.Parallel()
	s := answering(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such thing", http.StatusNotFound) })
	r := request(t, allowing(hostOf(s)), `{"url":"`+s.URL+`"}`)
	require.Equal(t, tool.Error, r.Outcome)
	require.Contains(t, r.Content, "404 Not Found")
	require.Contains(t, r.Content, "no such thing")
}

func TestHTTPRequest_BinaryBodyIsNamed(t *testing.T) {
	t.Parallel()
	s := answering(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\x89PNG\x00\x01")) })
	r := request(t, allowing(hostOf(s)), `{"url":"`+s.URL+`"}`)
	require.Equal(t, tool.OK, r.Outcome)
	require.Contains(t, r.Content, "[binary body of 6 bytes]")
}

func TestHTTPRequest_LongBodyIsCut(t *testing.T) {
	t.Parallel()
	s := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		for range maxResponseBytes/1024 + 10 {
			_, _ = io.WriteString(w, strings.Repeat("z", 1024))
		}
	})
	r := request(t, allowing(hostOf(s)), `{"url":"`+s.URL+`"}`)
	require.True(t, r.Truncated)
	require.LessOrEqual(t, len(r.Content), 4096)
	require.Contains(t, r.Content, "[read only the first 8388608 bytes]")
}

func TestHTTPRequest_SilentServerIsATimeout(t *testing.T) {
	t.Parallel()
	quit := make(chan struct{})
	s := answering(t, func(http.ResponseWriter, *http.Request) { <-quit })
	t.Cleanup(func() { close(quit) }) // before the server closes
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r, err := allowing(hostOf(s)).run(ctx, newCall(`{"url":"`+s.URL+`"}`))
	require.NoError(t, err)
	require.Equal(t, tool.Timeout, r.Outcome)
	require.Equal(t, hostOf(s)+" did not answer in time", r.Content)
}

func TestHTTPRequest_CancelledCallIsNoResult(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := echo(t)
	_, err := allowing(hostOf(s)).run(ctx, newCall(`{"url":"`+s.URL+`"}`))
	require.ErrorIs(t, err, context.Canceled)
}

func TestHTTPRequest_RefusedConnectionIsAnError(t *testing.T) {
	t.Parallel()
	s := echo(t)
	s.Close()
	r := request(t, allowing(hostOf(s)), `{"url":"`+s.URL+`"}`)
	require.Equal(t, tool.Error, r.Outcome)
	require.Contains(t, r.Content, "connection refused")
	require.NotContains(t, r.Content, "allow_list")
}

func TestHTTPRequest_UsesNoProxyOfTheServer(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	s := echo(t)
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	r := request(t, allowing("proxied.test:"+u.Port()), `{"url":"http://proxied.test:`+u.Port()+`/"}`)
	require.Equal(t, tool.Error, r.Outcome)
	require.Contains(t, r.Content, "lookup proxied.test")
}
