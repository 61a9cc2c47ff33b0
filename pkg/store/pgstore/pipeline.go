package pgstore

import (
	"context"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// maxTries bounds the repetitions of a pipeline that was chosen as the victim of a deadlock. Each costs the server's
// deadlock_timeout (1 s), so the call's own deadline may come first.
const maxTries = 5

// send runs the statements that fill queues as one round trip and one transaction: there is one Sync at the end, and
// nothing is committed before it. What the callbacks have read counts only if send returns nil. fill is called again
// after a deadlock.
func send(ctx context.Context, pool *pgxpool.Pool, doing string, fill func(*pgx.Batch)) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for try := 1; ; try++ {
		var b pgx.Batch
		fill(&b)
		err := pool.SendBatch(ctx, &b).Close()
		if err == nil || try == maxTries || !hasCode(err, codeDeadlock) {
			return wrap(doing, err)
		}
	}
}

// bounded calls a single statement of dbgen with the deadline of the store.
func bounded[P, R any](ctx context.Context, call func(context.Context, P) (R, error), params P) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx, params)
}

// queue adds a statement with the parameters of a dbgen struct; each is called with its rows.
func queue[R any](b *pgx.Batch, sql string, params any, each func(R)) {
	b.Queue(sql, spread(params)...).Query(func(rows pgx.Rows) error {
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[R])
		if err != nil {
			return err
		}
		for _, r := range all {
			each(r)
		}
		return nil
	})
}

// spread lists the fields of a parameter struct of dbgen: they are in the order of the placeholders.
func spread(params any) []any {
	v := reflect.ValueOf(params)
	out := make([]any, v.NumField())
	for i := range out {
		out[i] = v.Field(i).Interface()
	}
	return out
}

// column is an array parameter: one value of each item. It is never nil, for that would be a NULL array.
func column[T, C any](items []T, value func(*T) C) []C {
	out := make([]C, len(items))
	for i := range items {
		out[i] = value(&items[i])
	}
	return out
}
