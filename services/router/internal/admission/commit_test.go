package admission

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

func TestAdmit_StoresRowsRingsNewRunsAndTells(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := message("webhook", "a", 1), message("webhook", "a", 2)
	other := message("webhook", otherPartition(t), 3)
	batch := []*candidate{b.entry(t, first), b.entry(t, other), b.entry(t, second)}
	require.True(t, b.admit(t.Context(), batch))

	require.EqualValues(t, 1, b.admitted(t, first).Seq)
	require.EqualValues(t, 2, b.admitted(t, second).Seq)
	require.EqualValues(t, 1, b.admitted(t, other).Seq)
	require.EqualValues(t, 3, b.offsetOf(t, session.Partition(first.SKey)))
	require.EqualValues(t, 2, b.offsetOf(t, session.Partition(other.SKey)))

	var stored event.Message
	require.NoError(t, json.Unmarshal(b.admitted(t, first).Body, &stored))
	require.Equal(t, first, &stored)

	s, err := b.store.Session(t.Context(), first.SKey)
	require.NoError(t, err)
	require.Equal(t, "helper", s.AgentID)
	require.Len(t, b.rec.runs, 2)
	require.Equal(t, s.RunID, b.rec.runs[0].RunID)
	require.Equal(t, s.Gen, b.rec.runs[0].Gen)
	require.Equal(t, "fast", b.rec.runs[0].Class)
	require.Zero(t, b.rec.runs[0].N)

	require.Equal(t, []event.Type{event.ProcessingStarted, event.ProcessingStarted, event.MessagePending}, b.rec.types())
	require.Equal(t, s.RunID.String(), b.rec.events[0].RunID)
	require.Equal(t, second.UID, b.rec.events[2].MsgUID)
	require.Empty(t, b.rec.events[2].RunID, "pending events are told apart by their message")
}

func TestAdmit_RowCarriesTheConsumerSpanOfItsMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, publish := b.Tracer.Start(t.Context(), "publish")
	m := message("webhook", "a", 1)
	data, err := event.Encode(m)
	require.NoError(t, err)
	msg := bus.Msg{ID: m.UID, Data: data, Header: bus.Header{}}
	event.InjectTrace(ctx, msg.Header)
	c := b.raw(t, session.Partition(m.SKey), msg)
	require.True(t, b.admit(t.Context(), []*candidate{c}))

	spans := b.spans.GetSpans()
	require.Len(t, spans, 1)
	require.Equal(t, "process ing.{pp}.{tenant}.{skey}", spans[0].Name)
	require.Equal(t, publish.SpanContext().SpanID(), spans[0].Parent.SpanID())
	require.Equal(t, b.rec.runs[0].Traceparent, claimOne(t, b, b.rec.runs[0].SKey).Inbox[0].Traceparent)
	require.Contains(t, b.rec.runs[0].Traceparent, spanOf(c).String())
}

func claimOne(t *testing.T, b *bundle, skey string) store.Claimed {
	t.Helper()
	s, err := b.store.Session(t.Context(), skey)
	require.NoError(t, err)
	claimed, err := b.store.Claim(t.Context(), []store.ClaimRequest{{Fence: store.Fence{SKey: skey, Gen: s.Gen, RunID: s.RunID, Owner: "w/1"}}})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	return claimed[0]
}

func TestAdmit_AbsorbsDuplicates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := message("webhook", "a", 1)
	require.True(t, b.admit(t.Context(), []*candidate{b.entry(t, m), b.entry(t, m)}))
	require.True(t, b.admit(t.Context(), []*candidate{b.entry(t, m)}))
	s, err := b.store.Session(t.Context(), m.SKey)
	require.NoError(t, err)
	require.EqualValues(t, 1, s.LastSeq)
	require.EqualValues(t, 3, b.offsetOf(t, session.Partition(m.SKey)))
	require.Len(t, b.rec.runs, 1)
	require.Len(t, b.rec.types(), 1)
}

func TestAdmit_OffsetMoved_DropsThatPartitionAndStoresTheOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stolen, own := message("webhook", "a", 1), message("webhook", otherPartition(t), 2)
	batch := []*candidate{b.entry(t, stolen), b.entry(t, own)}
	p := session.Partition(stolen.SKey)
	at := b.at[p]
	require.NoError(t, b.store.Store.SetOffset(t.Context(),
		&store.Offset{Partition: p, Stream: "ING_0"}, store.Offset{Partition: p, Stream: "ING_0", LastSeq: 99}))

	require.True(t, b.admit(t.Context(), batch))
	require.True(t, at.ended(), "the position in memory would leave a gap")
	b.requireAbsent(t, stolen)
	require.EqualValues(t, 99, b.offsetOf(t, p))
	require.EqualValues(t, 1, b.admitted(t, own).Seq)
	require.False(t, b.at[session.Partition(own.SKey)].ended())
	require.Len(t, b.spans.GetSpans(), 2)

	late := b.raw(t, session.Partition(own.SKey), bus.Msg{})
	late.from = at
	tries := b.store.tries
	require.True(t, b.admit(t.Context(), []*candidate{late}))
	require.Equal(t, tries, b.store.tries, "what an ended attachment delivered is worthless")
}

func TestAdmit_FindsThePoisonAndStoresTheRestInOrder(t *testing.T) {
	t.Parallel()
	for guilty := range 7 {
		t.Run(fmt.Sprint("message ", guilty), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var msgs []*event.Message
			var batch []*candidate
			for n := range 7 {
				m := message("webhook", "a", n)
				if n == guilty {
					m.Quote = &event.Quote{Text: "a\x00b"} // jsonb refuses it
				}
				msgs = append(msgs, m)
				batch = append(batch, b.entry(t, m))
			}
			require.True(t, b.admit(t.Context(), batch))
			b.requireAbsent(t, msgs[guilty])
			for i, m := range slices.Delete(msgs, guilty, guilty+1) {
				require.EqualValues(t, i+1, b.admitted(t, m).Seq)
			}
			dead := b.store.Letters()
			require.Len(t, dead, 1)
			require.Len(t, b.rec.letters, 1)
			require.Equal(t, "default", b.rec.letters[0].Tenant)
			require.Equal(t, batch[guilty].ID, dead[0].Ref)
			require.Contains(t, dead[0].Reason, "content rejected")
			require.EqualValues(t, 7, b.offsetOf(t, session.Partition(msgs[0].SKey)))
		})
	}
}

func TestAdmit_ParksWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	wrongClass, noCommand := message("webhook", "a", 1), message("webhook", "a", 2)
	wrongClass.RunClass = "Fast.*"
	noCommand.Kind = event.KindCommand
	for name, c := range map[string]struct {
		msg    *event.Message
		raw    []byte
		reason string
	}{
		"no message":    {raw: []byte{0xff, 0xfe}, reason: "decode message event"},
		"invalid class": {msg: wrongClass, reason: "run_class: "},
		"empty command": {msg: noCommand, reason: "command: must not be empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			good := message("webhook", "a", 3)
			if c.msg != nil {
				var err error
				c.raw, err = event.Encode(c.msg)
				require.NoError(t, err)
			}
			p := session.Partition(good.SKey)
			bad := b.raw(t, p, bus.Msg{Subject: "ing.x", ID: "uid\x00\xff", Data: c.raw})
			require.True(t, b.admit(t.Context(), []*candidate{bad, b.entry(t, good)}))

			dead := b.store.Letters()
			require.Len(t, dead, 1)
			require.Equal(t, "ingress", dead[0].Kind)
			require.Equal(t, "uid\uFFFD", dead[0].Ref)
			require.Contains(t, dead[0].Reason, c.reason)
			require.Equal(t, []dispatch.Letter{{ID: dead[0].ID, MsgUID: dead[0].Ref, Reason: dead[0].Reason}}, b.rec.letters)
			require.JSONEq(t, `{"subject":"ing.x","data":"`+base64.StdEncoding.EncodeToString(c.raw)+`"}`, string(dead[0].Payload))
			require.EqualValues(t, 1, b.admitted(t, good).Seq)
			require.EqualValues(t, 2, b.offsetOf(t, p))
			require.Equal(t, codes.Error, b.spans.GetSpans()[0].Status.Code)
		})
	}
}

func TestAdmit_ParksAMessageOfAnotherPartition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := message("webhook", "a", 1)
	data, err := event.Encode(m)
	require.NoError(t, err)
	wrong := (session.Partition(m.SKey) + 1) % session.Partitions
	require.True(t, b.admit(t.Context(), []*candidate{b.raw(t, wrong, bus.Msg{ID: m.UID, Data: data})}))
	b.requireAbsent(t, m)
	require.Contains(t, b.store.Letters()[0].Reason, "skey: belongs to partition")
}

func TestAdmit_RetriesWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		begin := time.Now()
		b.store.admit = func(store.Admission) error {
			if time.Since(begin) < time.Minute {
				return fmt.Errorf("connect: %w", store.ErrUnavailable)
			}
			return nil
		}
		m := message("webhook", "a", 1)
		require.True(t, b.admit(t.Context(), []*candidate{b.entry(t, m)}))
		require.EqualValues(t, 1, b.admitted(t, m).Seq)
		require.Less(t, b.store.tries, 40, "tries are spaced out")
		require.Less(t, time.Since(begin), 70*time.Second)
	})
}

func TestAdmit_StopDuringAnOutageSkipsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var batch []*candidate
		for n := range 4 {
			batch = append(batch, b.entry(t, message("webhook", "a", n)))
		}
		// The batch is halved, then the store is gone for the first half only.
		b.store.admit = func(a store.Admission) error {
			switch {
			case len(a.Messages) == 4:
				return store.ErrRejected
			case a.Offsets[0].To <= 2:
				return store.ErrUnavailable
			default:
				return nil
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.False(t, b.admit(ctx, batch))
		require.Zero(t, b.offsetOf(t, batch[0].Partition), "the second half must not move the offset over the first")
		_, err := b.store.Session(t.Context(), batch[0].event.SKey)
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

func TestAdmit_GivesUpAnAttachmentWhoseDeadLetterIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.store.admit = func(store.Admission) error { return store.ErrRejected }
	c := b.entry(t, message("webhook", "a", 1))
	require.True(t, b.admit(t.Context(), []*candidate{c}))
	require.True(t, c.from.ended())
	require.Equal(t, 2, b.store.tries)
	require.Zero(t, b.offsetOf(t, c.Partition))
}

func TestAdmit_KindsOfRows(t *testing.T) {
	t.Parallel()
	for kind, want := range map[event.Kind]store.InboxKind{
		event.KindMessage: store.KindUser, event.KindReceipt: store.KindSystem,
		event.KindSystem: store.KindSystem, event.KindAction: store.KindApproval, event.KindTimer: store.KindTimer,
		event.KindCommand: store.KindCommand,
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			m := message("webhook", "a", 1)
			m.Kind, m.Command = kind, &event.Command{Name: "help"}
			require.True(t, b.admit(t.Context(), []*candidate{b.entry(t, m)}))
			require.Equal(t, want, b.admitted(t, m).Kind)
			s, err := b.store.Session(t.Context(), m.SKey)
			require.NoError(t, err)
			require.Equal(t, kind == event.KindMessage, s.RunID != uuid.Nil, "only messages want a run")
		})
	}
}

func TestAdmit_AnswersCommands(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"help":                   "/status",
		"status":                 "No messages yet.",
		"nonsense":               "Unknown command `/nonsense`",
		"a`b\n":                  "Unknown command `/ab`",
		strings.Repeat("é", 100): "`/" + strings.Repeat("é", 32) + "…`",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			m := slash("webhook", "a", 1, name)
			require.True(t, b.admit(t.Context(), []*candidate{b.entry(t, m)}))
			s := b.admitted(t, m)
			require.Equal(t, store.KindCommand, s.Kind)
			var parts []struct {
				Markdown string `json:"markdown"`
				Notice   bool   `json:"notice"`
			}
			require.NoError(t, json.Unmarshal(s.Notice, &parts))
			require.Len(t, parts, 1)
			require.Contains(t, parts[0].Markdown, want)
			require.True(t, parts[0].Notice)

			require.Empty(t, b.rec.runs, "commands never reach the model")
			require.Len(t, b.rec.notices, 1)
			require.Equal(t, "webhook", b.rec.notices[0].Platform)
			require.EqualValues(t, 1, b.rec.notices[0].OutSeq)
			require.Empty(t, b.rec.types(), "egress completes what it delivers")
			claimed, err := b.store.ClaimDeliveries(t.Context(), "s", []store.DeliveryClaim{{SKey: m.SKey, OutSeq: 1}})
			require.NoError(t, err)
			require.JSONEq(t, `{"platform":"webhook","account":"acc","chat_id":"a"}`, string(claimed[0].Target))
			require.Equal(t, m.UID+":command", claimed[0].DKey)
		})
	}
}

func TestAdmit_CompletesNoticesThatAreRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := slash(event.PlatformAPI, "a", 1, "help")
	require.True(t, b.admit(t.Context(), []*candidate{b.entry(t, m)}))
	require.Empty(t, b.rec.notices)
	require.Equal(t, []event.Type{event.ProcessingCompleted}, b.rec.types())
	require.Equal(t, m.UID, b.rec.events[0].MsgUID)
}

func TestAdmit_StatusKnowsTheRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.True(t, b.admit(t.Context(), []*candidate{b.entry(t, message("webhook", "a", 1)), b.entry(t, message("webhook", "a", 2))}))
	queued := slash("webhook", "a", 3, "status")
	require.True(t, b.admit(t.Context(), []*candidate{b.entry(t, queued)}))
	require.Contains(t, string(b.admitted(t, queued).Notice), "Waiting for a free worker since")

	claimOne(t, b, queued.SKey)
	running := slash("webhook", "a", 4, "status")
	require.True(t, b.admit(t.Context(), []*candidate{b.entry(t, running)}))
	require.Contains(t, string(b.admitted(t, running).Notice), "Answering since")
	require.Contains(t, string(b.admitted(t, running).Notice), ", 1 message waiting.")
	require.Contains(t, string(b.admitted(t, running).Notice), "Profile: helper")
}
