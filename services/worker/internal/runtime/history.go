package runtime

import (
	"cmp"
	"context"
	"slices"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/historycache"
)

// history returns what earlier runs of the conversation stored: what the cache knows, and from the store what it does not.
func (r *run) history(ctx context.Context) ([]store.Message, error) {
	limit := r.profile.cfg.Limits.History
	found := r.histories.Get(historycache.Query{SessionID: r.SessionID, DoneSeq: r.DoneSeq, Attempts: r.Attempts, Limit: limit})
	rows := found.Messages
	if found.State != historycache.Hit {
		// What this run has stored itself is part of what is read.
		more, err := r.readHistory(ctx, found, limit+len(r.stored))
		if err != nil {
			return nil, err
		}
		if rows = more; found.State == historycache.Stale {
			rows = found.Extend(more)
		}
	}
	r.before = &rows
	return rows, nil
}

// readHistory reads all of the history, or what the cache is missing, without the messages of this run.
func (r *run) readHistory(ctx context.Context, found historycache.Found, limit int) ([]store.Message, error) {
	rows, err := read(ctx, func(ctx context.Context) ([]store.Message, error) {
		if found.State == historycache.Stale {
			return r.Store.HistoryAfter(ctx, r.SKey, r.SessionID, found.After, limit)
		}
		return r.Store.History(ctx, r.SKey, r.SessionID, limit)
	})
	return slices.DeleteFunc(rows, func(m store.Message) bool { return m.RunID == r.RunID }), err
}

// remember keeps the history as the run leaves it. A run that did not need it knows too little.
func (r *run) remember(f store.Finish) {
	if r.before == nil {
		return
	}
	own := slices.Concat(r.stored, r.steps, f.Messages)
	slices.SortStableFunc(own, func(a, b store.Message) int { return cmp.Compare(a.N, b.N) })
	own = slices.CompactFunc(own, func(a, b store.Message) bool { return a.N == b.N }) // the store, too, keeps the first
	r.histories.Put(historycache.Entry{
		SessionID: r.SessionID, DoneSeq: f.To, RunGen: r.FirstGen,
		Messages: slices.Concat(*r.before, own), Limit: r.profile.cfg.Limits.History,
	})
}
