package builtin

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// sink collects what is shown.
type sink struct {
	mu    sync.Mutex
	texts []string
}

func (s *sink) send(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts = append(s.texts, text)
}

func (s *sink) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.texts)
}

func TestProgress_JoinsSmallPieces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var shown sink
		p := startProgress(shown.send, 1000)
		_, _ = p.Write([]byte("a"))
		synctest.Wait()
		require.Equal(t, []string{"a"}, shown.sent())
		_, _ = p.Write([]byte("b"))
		_, _ = p.Write([]byte("c"))
		synctest.Wait()
		require.Equal(t, []string{"a"}, shown.sent())
		<-time.After(2 * progressPause)
		synctest.Wait()
		require.Equal(t, []string{"a", "bc"}, shown.sent())
		p.stop()
	})
}

func TestProgress_StopShowsTheRest(t *testing.T) {
	t.Parallel()
	var sent strings.Builder
	p := startProgress(func(text string) { sent.WriteString(text) }, 1000)
	_, _ = p.Write([]byte("one "))
	_, _ = p.Write([]byte("two"))
	p.stop()
	require.Equal(t, "one two", sent.String())
}

func TestProgress_EndsAtItsBudget(t *testing.T) {
	t.Parallel()
	var sent strings.Builder
	p := startProgress(func(text string) { sent.WriteString(text) }, 10)
	for range 5 {
		n, err := p.Write([]byte("1234"))
		require.NoError(t, err)
		require.Equal(t, 4, n)
	}
	p.stop()
	require.Equal(t, "1234123412", sent.String())
}

func TestProgress_WaitsForTheRestOfACharacter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var shown sink
		p := startProgress(shown.send, 1000)
		euro := []byte("€")
		_, _ = p.Write(append([]byte("a"), euro[:2]...))
		synctest.Wait()
		require.Equal(t, []string{"a"}, shown.sent())
		_, _ = p.Write(euro[2:])
		<-time.After(2 * progressPause)
		synctest.Wait()
		require.Equal(t, []string{"a", "€"}, shown.sent())
		p.stop()
	})
}
