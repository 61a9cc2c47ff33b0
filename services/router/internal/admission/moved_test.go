package admission

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// outgoing is a log that only takes what is published.
type outgoing struct {
	Log
	msgs []bus.Msg
	errs []error
}

func (o *outgoing) Publish(_ context.Context, m bus.Msg) (bus.Ack, error) {
	var err error
	if len(o.errs) > 0 {
		err, o.errs = o.errs[0], o.errs[1:]
	}
	if err == nil {
		o.msgs = append(o.msgs, m)
	}
	return bus.Ack{}, err
}

// countingStore counts the questions for aliases.
type countingStore struct {
	*faults
	asked [][]store.Address
}

func (s *countingStore) ResolveAliases(ctx context.Context, addresses []store.Address) ([]string, error) {
	s.asked = append(s.asked, addresses)
	return s.faults.ResolveAliases(ctx, addresses)
}

const oldChat, newChat = "-4518000001", "-1002470000001"

func movedSetup(t *testing.T) (*bundle, *outgoing, *countingStore) {
	t.Helper()
	b := setup(t)
	log, counting := &outgoing{}, &countingStore{faults: b.store}
	b.Log, b.Store = log, counting
	_, err := b.store.LearnAlias(t.Context(), store.Address{Tenant: "default", Platform: "telegram", Account: "acc", ID: newChat}, oldChat)
	require.NoError(t, err)
	return b, log, counting
}

func TestING08_MessageOfAMovedChatGoesToTheSessionOfItsOldId(t *testing.T) {
	t.Parallel()
	b, log, counting := movedSetup(t)
	old, m, next := message("telegram", oldChat, 150), message("telegram", newChat, 2), message("telegram", newChat, 3)
	b.admitAll(t, m, old, next)
	require.Len(t, counting.asked, 1, "one question for a batch")

	require.Equal(t, store.KindMoved, b.admitted(t, m).Kind)
	require.Equal(t, store.Idle, b.session(t, m).State, "nothing runs under the new id")
	require.Len(t, b.rec.runs, 1)
	require.Equal(t, old.SKey, b.rec.runs[0].SKey)
	require.Len(t, log.msgs, 2)
	require.Equal(t, bus.IngestSubject("default", old.SKey), log.msgs[0].Subject)
	require.Equal(t, m.UID+"#m", log.msgs[0].ID)
	require.NotEmpty(t, log.msgs[0].Header.Get("traceparent"))
	forwarded, err := event.Decode(log.msgs[0].Data)
	require.NoError(t, err)
	require.Equal(t, old.SKey, forwarded.SKey)
	require.Equal(t, m.UID, forwarded.UID)
	require.Equal(t, m.ReplyTo, forwarded.ReplyTo)

	// It arrives there, twice, and is an ordinary message.
	b.admitAll(t, forwarded, forwarded)
	require.Equal(t, store.KindUser, b.admitted(t, forwarded).Kind)
	require.EqualValues(t, 2, b.session(t, old).LastSeq)
	require.Len(t, log.msgs, 2, "it is not sent on again")

	e := edited(m, "1", "changed")
	e.SessionKey, e.SKey = forwarded.SessionKey, forwarded.SKey // its door knows the alias
	b.admitAll(t, e)
	require.Equal(t, "changed", b.body(t, forwarded).Text)
}

func TestMoved_CommandsToo(t *testing.T) {
	t.Parallel()
	b, log, _ := movedSetup(t)
	stop := slash("telegram", newChat, 2, "stop")
	b.admitAll(t, stop)
	require.Equal(t, store.KindMoved, b.admitted(t, stop).Kind)
	require.Empty(t, b.notice(t, stop))
	require.Len(t, log.msgs, 1)
}

func TestMoved_NothingIsAdmittedBeforeTheBrokerHasIt(t *testing.T) {
	t.Parallel()
	b, log, _ := movedSetup(t)
	log.errs = []error{bus.ErrUnavailable, bus.ErrFull}
	m := message("telegram", newChat, 2)
	batch := []*candidate{b.entry(t, m)}
	b.store.admit = func(store.Admission) error {
		require.Len(t, log.msgs, 1)
		return nil
	}
	require.True(t, b.admit(t.Context(), batch))
	require.Equal(t, 1, b.store.tries)
	require.Equal(t, store.KindMoved, b.admitted(t, m).Kind)
}

func TestMoved_IsForwardedOnceWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	b, log, _ := movedSetup(t)
	b.store.admit = func(store.Admission) error {
		if b.store.tries < 3 {
			return store.ErrUnavailable
		}
		return nil
	}
	b.admitAll(t, message("telegram", newChat, 2))
	require.Equal(t, 3, b.store.tries)
	require.Len(t, log.msgs, 1)
}

func TestMoved_ParksWhatTheBrokerRefuses(t *testing.T) {
	t.Parallel()
	b, log, _ := movedSetup(t)
	log.errs = []error{errors.Join(errors.New("publish"), bus.ErrTooLarge)}
	m := message("telegram", newChat, 2)
	b.admitAll(t, m)
	b.requireAbsent(t, m)
	require.Len(t, b.store.Letters(), 1)
	require.EqualValues(t, 1, b.offsetOf(t, session.Partition(m.SKey)))
}

func TestMoved_ChatsOfOtherPlatformsAreNotAskedFor(t *testing.T) {
	t.Parallel()
	b, log, counting := movedSetup(t)
	b.admitAll(t, message("webhook", newChat, 1), message(event.PlatformAPI, newChat, 1))
	require.Empty(t, counting.asked)
	require.Empty(t, log.msgs)
}
