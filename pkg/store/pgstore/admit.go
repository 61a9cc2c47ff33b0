package pgstore

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

const defaultRunClass = "default"

// Admit implements store.Inbox: T1 as one pipeline, offsets first.
func (s *Store) Admit(ctx context.Context, a store.Admission) ([]store.Admitted, error) {
	t1 := t1{Admission: a, waves: deal(a.Messages), notices: make([][]byte, len(a.Messages))}
	for i := range a.Messages {
		var err error
		if t1.notices[i], err = noticeJSON(a.Messages[i].Notice); err != nil {
			return nil, wrap("admit", err)
		}
	}
	if err := send(ctx, s.async, "admit", t1.queue); err != nil {
		return nil, err
	}
	return t1.results, nil
}

// t1 is an admission on its way to the database.
type t1 struct {
	store.Admission
	waves   []wave
	notices [][]byte
	results []store.Admitted
}

// wave holds messages by index, each session at most once: the n-th message of a session is in the n-th wave, so that
// its statement sees the rows of the messages before it.
type wave struct {
	plain, odd []int
}

func deal(msgs []store.AdmitMessage) []wave {
	var waves []wave
	count := map[string]int{}
	for i := range msgs {
		n := count[msgs[i].SKey]
		count[msgs[i].SKey]++
		if n == len(waves) {
			waves = append(waves, wave{})
		}
		if msgs[i].Plain() {
			waves[n].plain = append(waves[n].plain, i)
		} else {
			waves[n].odd = append(waves[n].odd, i)
		}
	}
	for _, w := range waves {
		slices.SortFunc(w.odd, func(a, b int) int { return strings.Compare(msgs[a].SKey, msgs[b].SKey) })
	}
	return waves
}

func (t *t1) queue(b *pgx.Batch) {
	// What a statement does not answer: a row that is there already, an edit that finds none.
	t.results = column(t.Messages, func(m *store.AdmitMessage) store.Admitted {
		return store.Admitted{Duplicate: m.Edit == nil}
	})
	if len(t.Offsets) > 0 {
		b.Queue(dbgen.AdmitOffsets, spread(offsetParams(t.Offsets))...)
	}
	if t.statements() > 1 {
		b.Queue(dbgen.LockSessions, column(t.Messages, func(m *store.AdmitMessage) string { return m.SKey }))
	}
	for _, w := range t.waves {
		t.queueWave(b, w)
	}
	if len(t.Dead) > 0 {
		b.Queue(dbgen.InsertDeadLetters, spread(deadLetterParams(t.Dead))...)
	}
}

// statements counts those that lock rows of sessions. A reset is two.
func (t *t1) statements() int {
	n := 0
	for _, w := range t.waves {
		n += min(1, len(w.plain)) + len(w.odd)
		for _, i := range w.odd {
			if t.Messages[i].Reset {
				n++
			}
		}
	}
	return n
}

func (t *t1) queueWave(b *pgx.Batch, w wave) {
	if len(w.plain) > 0 {
		msgs := make([]store.AdmitMessage, len(w.plain))
		index := make(map[string]int, len(w.plain))
		for n, i := range w.plain {
			msgs[n], index[t.Messages[i].SKey] = t.Messages[i], i
		}
		queue(b, dbgen.AdmitBatch, admitBatchParams(msgs), func(r dbgen.AdmitBatchRow) {
			t.results[index[r.Skey]] = admitted(dbgen.AdmitMessageRow(r))
		})
	}
	for _, i := range w.odd {
		t.queueOdd(b, i)
	}
}

func (t *t1) queueOdd(b *pgx.Batch, i int) {
	m := &t.Messages[i]
	switch {
	case m.Edit != nil:
		edit := dbgen.AdmitEditParams{Skey: m.SKey, Seq: m.Edit.Seq, Body: jsonb(m.Edit.Body)}
		queue(b, dbgen.AdmitEdit, edit, func(dbgen.AdmitEditRow) { t.results[i] = store.Admitted{Edited: true} })
	case m.Reset:
		b.Queue(dbgen.EnsureSession, spread(ensureSessionParams(m))...)
		queue(b, dbgen.AdmitReset, admitResetParams(m, t.notices[i]), func(r dbgen.AdmitResetRow) {
			t.results[i] = store.Admitted{
				Seq: r.LastSeq, Kind: m.Kind, DoneSeq: r.DoneSeq, Gen: r.Gen, State: store.SessionState(r.State),
				OutSeq: r.NoticeSeq, Fenced: r.OldRun.UUID,
			}
		})
	default:
		queue(b, dbgen.AdmitMessage, admitMessageParams(m, t.notices[i]), func(r dbgen.AdmitMessageRow) {
			t.results[i] = admitted(r)
		})
	}
}

func admitted(r dbgen.AdmitMessageRow) store.Admitted {
	return store.Admitted{
		Seq: r.LastSeq, Kind: store.InboxKind(r.RowKind), DoneSeq: r.DoneSeq, Gen: r.Gen, State: store.SessionState(r.State),
		RunID: r.RunID.UUID, Created: r.Created, Owner: r.Owner.String, StopRun: r.StopRun.UUID, OutSeq: r.NoticeSeq,
	}
}

func offsetParams(moves []store.OffsetMove) dbgen.AdmitOffsetsParams {
	return dbgen.AdmitOffsetsParams{
		Parts:   column(moves, func(m *store.OffsetMove) int32 { return int32(m.Partition) }),
		OldSeqs: column(moves, func(m *store.OffsetMove) int64 { return m.From }),
		NewSeqs: column(moves, func(m *store.OffsetMove) int64 { return m.To }),
		Uids:    column(moves, func(m *store.OffsetMove) string { return m.UID }),
	}
}

func admitBatchParams(msgs []store.AdmitMessage) dbgen.AdmitBatchParams {
	return dbgen.AdmitBatchParams{
		Skeys:        column(msgs, func(m *store.AdmitMessage) string { return m.SKey }),
		Tenants:      column(msgs, func(m *store.AdmitMessage) string { return m.Tenant }),
		SessionKeys:  column(msgs, func(m *store.AdmitMessage) string { return m.SessionKey }),
		SessionIds:   column(msgs, func(m *store.AdmitMessage) uuid.UUID { return m.SessionID }),
		Parts:        column(msgs, partition),
		AgentIds:     column(msgs, func(m *store.AdmitMessage) string { return m.AgentID }),
		RunClasses:   column(msgs, runClass),
		Uids:         column(msgs, func(m *store.AdmitMessage) string { return m.UID }),
		Kinds:        column(msgs, func(m *store.AdmitMessage) string { return string(m.Kind) }),
		Bodies:       column(msgs, func(m *store.AdmitMessage) []byte { return jsonb(m.Body) }),
		StreamSeqs:   column(msgs, func(m *store.AdmitMessage) int64 { return m.StreamSeq }),
		Traceparents: column(msgs, func(m *store.AdmitMessage) string { return m.Traceparent }),
		RunIds:       column(msgs, func(m *store.AdmitMessage) uuid.UUID { return m.RunID }),
	}
}

func admitMessageParams(m *store.AdmitMessage, notice []byte) dbgen.AdmitMessageParams {
	p := dbgen.AdmitMessageParams{
		Skey: m.SKey, Tenant: m.Tenant, SessionKey: m.SessionKey, SessionID: m.SessionID, Part: partition(m),
		AgentID: m.AgentID, RunClass: runClass(m), Uid: m.UID, Kind: string(m.Kind), Body: jsonb(m.Body), Grp: m.Group,
		StreamSeq: m.StreamSeq, Traceparent: m.Traceparent, RunID: m.RunID,
		WantsRun: m.WantsRun, Wakes: m.Wakes || m.Stop, Steer: m.Steer, Stop: m.Stop, Items: items(m),
		Notice: notice, NoticeRead: noticeRead(m), NoticeIfIdle: m.NoticeIfIdle,
		RejectIfBusy: m.RejectIfBusy, Interrupt: m.Interrupt, EndsCollect: m.EndsCollect,
	}
	if m.Collect != nil {
		p.Collects, p.QuietUs, p.MaxUs = true, m.Collect.Quiet.Microseconds(), m.Collect.Max.Microseconds()
	}
	return p
}

func ensureSessionParams(m *store.AdmitMessage) dbgen.EnsureSessionParams {
	first := m.SessionID
	if m.Resume != nil { // a new session has none to take up again
		first = uuid.New()
	}
	return dbgen.EnsureSessionParams{
		Skey: m.SKey, Tenant: m.Tenant, SessionKey: m.SessionKey, SessionID: first, Part: partition(m),
		AgentID: m.AgentID, RunClass: runClass(m),
	}
}

func admitResetParams(m *store.AdmitMessage, notice []byte) dbgen.AdmitResetParams {
	p := dbgen.AdmitResetParams{
		Skey: m.SKey, SessionID: m.SessionID, RunID: m.RunID, Uid: m.UID, Kind: string(m.Kind), Body: jsonb(m.Body),
		Grp: m.Group, StreamSeq: m.StreamSeq, Traceparent: m.Traceparent, Items: items(m),
		Notice: notice, NoticeRead: noticeRead(m),
	}
	switch {
	case m.Resume == nil:
	case m.Resume.Parent == uuid.Nil:
		p.Resumed = true
	default:
		p.Parent = uuid.NullUUID{UUID: m.Resume.Parent, Valid: true}
		p.ParentUpto = pgtype.Int8{Int64: m.Resume.ParentUpto, Valid: true}
	}
	return p
}

// items is never nil, for that would be a NULL array.
func items(m *store.AdmitMessage) []string { return append([]string{}, m.Items...) }

func noticeRead(m *store.AdmitMessage) bool { return m.Notice != nil && m.Notice.Read }

func partition(m *store.AdmitMessage) int16 { return int16(session.Partition(m.SKey)) }

func runClass(m *store.AdmitMessage) string { return cmp.Or(m.RunClass, defaultRunClass) }

func deadLetterParams(dead []store.DeadLetter) dbgen.InsertDeadLettersParams {
	return dbgen.InsertDeadLettersParams{
		Ids:      column(dead, func(d *store.DeadLetter) uuid.UUID { return d.ID }),
		Kinds:    column(dead, func(d *store.DeadLetter) string { return d.Kind }),
		Refs:     column(dead, func(d *store.DeadLetter) string { return d.Ref }),
		Reasons:  column(dead, func(d *store.DeadLetter) string { return d.Reason }),
		Payloads: column(dead, func(d *store.DeadLetter) []byte { return jsonb(d.Payload) }),
	}
}
