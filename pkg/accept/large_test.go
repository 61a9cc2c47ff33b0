package accept_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
)

// published decodes the i-th message that went over the bus.
func published(t *testing.T, r *recorder, i int) *event.Message {
	t.Helper()
	m, err := event.Decode(r.msgs[i].Data)
	require.NoError(t, err)
	return m
}

func TestENG12_EventsThatAreTooLargeForTheBus(t *testing.T) {
	t.Parallel()
	a, r := setup()
	long, small, wide := strings.Repeat("x", 2_000_000), "small", strings.Repeat("水", 349_500)
	for i, text := range []string{long, small, wide} {
		_, err := a.Accept(t.Context(), message("c1", string(rune('a'+i)), text))
		require.NoError(t, err)
	}
	require.Len(t, r.msgs, 3)
	for _, m := range r.msgs {
		require.LessOrEqual(t, len(m.Data), event.MaxEncodedBytes)
	}
	require.Len(t, r.objects, 2, "349500 characters are over a million bytes once they are encoded")
	require.Equal(t, small, published(t, r, 1).Text)
	for i, text := range map[int]string{0: long, 2: wide} {
		m := published(t, r, i)
		require.Empty(t, m.Text)
		require.True(t, strings.HasPrefix(m.BlobRef, "msg/"+m.UID+"/"))
		require.NoError(t, m.Attach(r.objects[m.BlobRef]))
		require.Equal(t, text, m.Text)
	}
	require.Len(t, r.events, 3)
	require.Greater(t, r.events[2].Size, int64(3*349_500), "observers are told the whole size")
}

func TestAccept_JudgesTheEncodedSize(t *testing.T) {
	t.Parallel()
	a, r := setup()
	_, err := a.Accept(t.Context(), message("c1", "m1", strings.Repeat("水", event.MaxEncodedBytes/3-500)))
	require.NoError(t, err)
	require.Empty(t, r.objects)
	_, err = a.Accept(t.Context(), message("c1", "m2", strings.Repeat("水", event.MaxEncodedBytes/3)))
	require.NoError(t, err)
	require.Len(t, r.objects, 1, "the text alone would fit")
}

func TestAccept_RefusesWhatIsTooLargeForTheObjectStore(t *testing.T) {
	t.Parallel()
	a, r := setup()
	_, err := a.Accept(t.Context(), message("c1", "m1", strings.Repeat("x", accept.MaxBytes)))
	var invalid *accept.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.True(t, invalid.TooLarge, "its envelope comes on top of 20 MB")
	require.Empty(t, r.objects)
	require.Empty(t, r.msgs)
}

func TestAccept_PublishesNothingThatRefersToAMissingObject(t *testing.T) {
	t.Parallel()
	a, r := setup()
	r.broken = bus.ErrUnavailable
	_, err := a.Accept(t.Context(), message("c1", "m1", strings.Repeat("x", 300<<10)))
	require.ErrorIs(t, err, accept.ErrUnavailable)
	require.Empty(t, r.msgs)
	require.Empty(t, r.events)
}

func TestAccept_KeepsTheObjectOfTheFirstBodyOfAnID(t *testing.T) {
	t.Parallel()
	a, r := setup()
	first, second := strings.Repeat("a", 300<<10), strings.Repeat("b", 300<<10)
	for _, text := range []string{first, second} {
		_, err := a.Accept(t.Context(), message("c1", "m1", text))
		require.NoError(t, err)
	}
	require.Len(t, r.msgs, 1)
	m := published(t, r, 0)
	require.NoError(t, m.Attach(r.objects[m.BlobRef]))
	require.Equal(t, first, m.Text)
}
