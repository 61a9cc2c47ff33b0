package netproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/testkit/netproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers every line with itself and reports the lines that it received.
func echo(t *testing.T) (addr string, received <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	lines := make(chan string, 16)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for s := bufio.NewScanner(conn); s.Scan(); {
					lines <- s.Text()
					if _, err := fmt.Fprintln(conn, s.Text()); err != nil {
						return // the proxy has ended the connection
					}
				}
			}()
		}
	}()
	return l.Addr().String(), lines
}

type client struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, p *netproxy.Proxy) client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	return client{conn, bufio.NewReader(conn)}
}

func (c client) say(t *testing.T, line string) {
	t.Helper()
	_, err := fmt.Fprintln(c, line)
	require.NoError(t, err)
}

func (c client) hear(t *testing.T) string {
	t.Helper()
	line, err := c.r.ReadString('\n')
	require.NoError(t, err)
	return line
}

func requireEnded(t *testing.T, c client) {
	t.Helper()
	_, err := io.ReadAll(c.r)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection is still open")
}

func TestProxy_ForwardsBothWays(t *testing.T) {
	t.Parallel()
	addr, received := echo(t)
	c := dial(t, netproxy.New(t, addr))
	for _, line := range []string{"one", "two"} {
		c.say(t, line)
		require.Equal(t, line, <-received)
		require.Equal(t, line+"\n", c.hear(t))
	}
}

func TestProxy_CutEndsConnectionsAndRefusesNewOnesUntilRestored(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t)
	p := netproxy.New(t, addr)
	c := dial(t, p)
	c.say(t, "one")
	require.Equal(t, "one\n", c.hear(t))
	p.Cut()
	requireEnded(t, c)
	requireEnded(t, dial(t, p))
	p.Restore()
	c = dial(t, p)
	c.say(t, "two")
	require.Equal(t, "two\n", c.hear(t))
}

func TestProxy_MuteLosesAnswersOnly(t *testing.T) {
	t.Parallel()
	addr, received := echo(t)
	p := netproxy.New(t, addr)
	c := dial(t, p)
	c.say(t, "one")
	require.Equal(t, "one\n", c.hear(t))
	require.Equal(t, "one", <-received)
	p.Mute()
	c.say(t, "lost")
	require.Equal(t, "lost", <-received)
	p.Restore()
	rest, err := io.ReadAll(c.r)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "a connection that lost something ends")
	require.Empty(t, rest)
	c = dial(t, p)
	c.say(t, "two")
	require.Equal(t, "two\n", c.hear(t))
}

func TestProxy_EndsConnectionsToATargetThatIsDown(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	requireEnded(t, dial(t, netproxy.New(t, l.Addr().String())))
}
