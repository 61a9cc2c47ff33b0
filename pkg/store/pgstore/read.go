package pgstore

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// Session implements store.Reader.
func (s *Store) Session(ctx context.Context, skey string) (store.Session, error) {
	r, err := bounded(ctx, s.queries.GetSession, skey)
	if err != nil {
		return store.Session{}, wrap("read session "+skey, err)
	}
	return sessionOf(&r), nil
}

func sessionOf(r *dbgen.GetSessionRow) store.Session {
	return store.Session{
		SKey: r.Skey, Tenant: r.Tenant, SessionKey: r.SessionKey, SessionID: r.SessionID, Partition: int(r.Part),
		AgentID: r.AgentID, RunClass: r.RunClass, State: store.SessionState(r.State), Gen: r.Gen,
		RunID: r.RunID.UUID, Owner: r.Owner.String,
		LastSeq: r.LastSeq, DoneSeq: r.DoneSeq, WantSeq: r.WantSeq, WakeSeq: r.WakeSeq, CtlSeq: r.CtlSeq,
		StopRun: r.StopRun.UUID, OutSeq: r.OutSeq, OutSent: r.OutSent,
		Attempt: int(r.Attempt), Stall: int(r.Stall), StallKey: r.StallKey.String, QueuedAt: utc(r.QueuedAt),
		TouchedAt: utc(r.TouchedAt), WaitKind: store.WaitKind(r.WaitKind.String), WakeAt: utc(r.WakeAt),
	}
}

// Run implements store.Reader.
func (s *Store) Run(ctx context.Context, id uuid.UUID) (store.Run, error) {
	row, err := bounded(ctx, s.queries.GetRun, id)
	if err != nil {
		return store.Run{}, wrap("read run "+id.String(), err)
	}
	r := row.Run
	return store.Run{
		ID: r.RunID, SKey: r.Skey, SessionID: r.SessionID, AgentID: r.AgentID, State: store.RunState(r.State),
		FirstGen: r.FirstGen, LastGen: r.LastGen, Owner: r.Owner.String, Attempts: int(r.Attempts),
		FromSeq: r.FromSeq.Int64, ToSeq: r.ToSeq.Int64, Usage: r.Usage, Error: r.Error.String,
		CreatedAt: utc(r.CreatedAt), StartedAt: utc(r.StartedAt), EndedAt: utc(r.EndedAt),
	}, nil
}

// RunMessages implements store.Reader.
func (s *Store) RunMessages(ctx context.Context, id uuid.UUID) ([]store.Message, error) {
	rows, err := bounded(ctx, s.queries.RunMessages, id)
	if err != nil {
		return nil, wrap("read messages of run "+id.String(), err)
	}
	return column(rows, func(r *dbgen.RunMessagesRow) store.Message { return message((*dbgen.HistoryRow)(r)) }), nil
}

// RunReplies implements store.Reader.
func (s *Store) RunReplies(ctx context.Context, id uuid.UUID) ([]store.Reply, error) {
	rows, err := bounded(ctx, s.queries.RunReplies, id)
	if err != nil {
		return nil, wrap("read replies of run "+id.String(), err)
	}
	return column(rows, func(r *dbgen.RunRepliesRow) store.Reply {
		return store.Reply{
			OutSeq: r.OutSeq, DKey: r.Dkey, Platform: r.Platform, State: store.OutState(r.State), Parts: r.Parts,
		}
	}), nil
}

// Submission implements store.Reader.
func (s *Store) Submission(ctx context.Context, skey, msgUID string) (store.Submission, error) {
	r, err := bounded(ctx, s.queries.GetSubmission, dbgen.GetSubmissionParams{Skey: skey, MsgUid: msgUID})
	if err != nil {
		return store.Submission{}, wrap("read submission", err)
	}
	out := store.Submission{Seq: r.Seq, Kind: store.InboxKind(r.Kind), Body: r.Body, Notice: r.Notice}
	if !r.RunID.Valid {
		return out, nil
	}
	out.Run, err = s.Run(ctx, r.RunID.UUID)
	if err != nil && !errors.Is(err, store.ErrNotFound) { // retention may have taken the run in between
		return store.Submission{}, err
	}
	out.Superseded, err = bounded(ctx, s.queries.IsSuperseded, dbgen.IsSupersededParams{
		RunID: r.RunID.UUID, Seq: pgtype.Int8{Int64: r.Seq, Valid: true},
	})
	return out, wrap("read submission", err)
}

// InboxAfter implements store.Reader.
func (s *Store) InboxAfter(ctx context.Context, skey string, seq int64) ([]store.InboxRow, error) {
	rows, err := bounded(ctx, s.queries.InboxAfter, dbgen.InboxAfterParams{Skey: skey, Seq: seq})
	if err != nil {
		return nil, wrap("read inbox", err)
	}
	return column(rows, inboxRow), nil
}

// FindInbox implements store.Reader.
func (s *Store) FindInbox(ctx context.Context, skey, uid string) (store.InboxRow, error) {
	r, err := bounded(ctx, s.queries.FindInbox, dbgen.FindInboxParams{Skey: skey, Uid: uid})
	if err != nil {
		return store.InboxRow{}, wrap("find inbox row", err)
	}
	return inboxRow((*dbgen.InboxAfterRow)(&r)), nil
}

func inboxRow(r *dbgen.InboxAfterRow) store.InboxRow {
	return store.InboxRow{
		Seq: r.Seq, UID: r.MsgUid, Kind: store.InboxKind(r.Kind), Body: r.Body, Group: r.Grp.String, RunID: r.RunID.UUID,
		Traceparent: r.Traceparent.String,
	}
}

// KnownItems implements store.Reader.
func (s *Store) KnownItems(ctx context.Context, skey string, uids []string) ([]string, error) {
	known, err := bounded(ctx, s.queries.KnownItems, dbgen.KnownItemsParams{Skey: skey, Uids: append([]string{}, uids...)})
	return known, wrap("read known items", err)
}

func message(r *dbgen.HistoryRow) store.Message {
	return store.Message{
		RunGen: r.RunGen, Branch: int(r.Branch), N: int(r.N), RunID: r.RunID, Role: r.Role, Content: r.Content,
		InboxSeq: r.InboxSeq.Int64,
	}
}
