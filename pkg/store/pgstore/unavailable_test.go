package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/pgserver"
)

// calls is every method of the port that talks to the database.
func calls(s store.Store, run store.Claimed, m store.AdmitMessage) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Offsets":   func(ctx context.Context) error { _, err := s.Offsets(ctx, []int{1}); return err },
		"SetOffset": func(ctx context.Context) error { return s.SetOffset(ctx, nil, store.Offset{Partition: 1}) },
		"Admit": func(ctx context.Context) error {
			_, err := s.Admit(ctx, store.Admission{Messages: []store.AdmitMessage{m}})
			return err
		},
		"Claim": func(ctx context.Context) error {
			_, err := s.Claim(ctx, []store.ClaimRequest{{Fence: run.Fence}})
			return err
		},
		"Checkpoint": func(ctx context.Context) error {
			_, err := s.Checkpoint(ctx, []store.Checkpoint{{Fence: run.Fence, RunGen: run.FirstGen}})
			return err
		},
		"Finish": func(ctx context.Context) error {
			_, err := s.Finish(ctx, []store.Finish{finish(run, 1)})
			return err
		},
		"Handover": func(ctx context.Context) error {
			_, err := s.Handover(ctx, []store.Checkpoint{{Fence: run.Fence, RunGen: run.FirstGen}})
			return err
		},
		"StopQueued": func(ctx context.Context) error {
			_, err := s.StopQueued(ctx, store.QueuedStop{SKey: m.SKey})
			return err
		},
		"Heartbeat": func(ctx context.Context) error { return s.Heartbeat(ctx, store.WorkerBeat{WorkerID: "w"}) },
		"ClaimDeliveries": func(ctx context.Context) error {
			_, err := s.ClaimDeliveries(ctx, "e", []store.DeliveryClaim{{SKey: m.SKey, OutSeq: 1}})
			return err
		},
		"RecordPart":    func(ctx context.Context) error { return s.RecordPart(ctx, store.PartSent{SKey: m.SKey}) },
		"RetryDelivery": func(ctx context.Context) error { return s.RetryDelivery(ctx, m.SKey, 1, "e", 0, false) },
		"MarkDeliveries": func(ctx context.Context) error {
			_, err := s.MarkDeliveries(ctx, []store.Mark{{SKey: m.SKey, OutSeq: 1, State: store.OutSent}})
			return err
		},
		"QueuedRuns":    func(ctx context.Context) error { _, _, err := s.QueuedRuns(ctx, []int{1}, 0, "", 1); return err },
		"DueDeliveries": func(ctx context.Context) error { _, err := s.DueDeliveries(ctx, 1); return err },
		"Backlog":       func(ctx context.Context) error { _, _, err := s.Backlog(ctx, []int{1}); return err },
		"Session":       func(ctx context.Context) error { _, err := s.Session(ctx, m.SKey); return err },
		"Run":           func(ctx context.Context) error { _, err := s.Run(ctx, run.RunID); return err },
		"RunMessages":   func(ctx context.Context) error { _, err := s.RunMessages(ctx, run.RunID); return err },
		"RunReplies":    func(ctx context.Context) error { _, err := s.RunReplies(ctx, run.RunID); return err },
		"Submission":    func(ctx context.Context) error { _, err := s.Submission(ctx, m.SKey, m.UID); return err },
		"InboxAfter":    func(ctx context.Context) error { _, err := s.InboxAfter(ctx, m.SKey, 0); return err },
		"FindInbox":     func(ctx context.Context) error { _, err := s.FindInbox(ctx, m.SKey, m.UID); return err },
		"KnownItems":    func(ctx context.Context) error { _, err := s.KnownItems(ctx, m.SKey, []string{m.UID}); return err },
		"ResolveAliases": func(ctx context.Context) error {
			_, err := s.ResolveAliases(ctx, []store.Address{{ID: "1"}})
			return err
		},
		"LearnAlias":     func(ctx context.Context) error { _, err := s.LearnAlias(ctx, store.Address{ID: "1"}, "2"); return err },
		"NotePreview":    func(ctx context.Context) error { return s.NotePreview(ctx, m.SKey, run.RunID, "1", "e") },
		"Previews":       func(ctx context.Context) error { _, err := s.Previews(ctx, m.SKey, run.RunID); return err },
		"ForgetPreviews": func(ctx context.Context) error { return s.ForgetPreviews(ctx, m.SKey, run.RunID) },
		"History":        func(ctx context.Context) error { _, err := s.History(ctx, m.SKey, uuid.New(), 1); return err },
		"Ready":          func(ctx context.Context) error { return s.Ready(ctx) },
	}
}

func TestStore_ServerIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	server := pgserver.New(t)
	cfg := pgstore.Config{URL: server.URL(), Connections: 2}
	require.NoError(t, pgstore.Migrate(t.Context(), cfg))
	s, err := pgstore.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	m := message("a", "m1")
	admitted, err := s.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{m}})
	require.NoError(t, err)
	run := claim(t, s, m.SKey, admitted[0], "w/1")
	_, err = s.Checkpoint(t.Context(), []store.Checkpoint{{Fence: run.Fence, RunGen: run.FirstGen}})
	require.NoError(t, err, "a durable checkpoint makes the claim and the admission durable")

	require.NoError(t, server.Kill())
	for name, call := range calls(s, run, m) {
		require.ErrorIs(t, call(t.Context()), store.ErrUnavailable, name)
	}

	require.NoError(t, server.Restart(t.Context()))
	await.NoError(t, 30*time.Second, func() error { return s.Ready(t.Context()) })
	fin := []store.Finish{finish(run, 1, reply())}
	var got []store.FinishResult
	await.NoError(t, 30*time.Second, func() (err error) { got, err = s.Finish(t.Context(), fin); return err })
	require.Equal(t, store.Finished, got[0].Outcome)
	require.True(t, got[0].Known)

	again, err := s.Finish(t.Context(), fin)
	require.NoError(t, err)
	require.Equal(t, []store.FinishResult{{Outcome: store.Finished}}, again, "sent again, it was committed by an earlier try")
}

func TestStore_CancelledCallIsUnavailable(t *testing.T) {
	t.Parallel()
	s := open(t, database(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range calls(s, store.Claimed{}, message("a", "m1")) {
		err := call(ctx)
		require.ErrorIs(t, err, store.ErrUnavailable, name)
		require.ErrorIs(t, err, context.Canceled, name)
	}
}
