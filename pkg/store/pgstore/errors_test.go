package pgstore

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func TestWrap_MapsEveryFailureToTheErrorsOfThePort(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"cardinality":             {&pgconn.PgError{Code: "21000"}, store.ErrRejected},
		"text that is no JSON":    {&pgconn.PgError{Code: "22P02"}, store.ErrRejected},
		"duplicate key":           {&pgconn.PgError{Code: "23505"}, store.ErrRejected},
		"index row too large":     {&pgconn.PgError{Code: "54000"}, store.ErrRejected},
		"connection failure":      {&pgconn.PgError{Code: "08006"}, store.ErrUnavailable},
		"deadlock":                {&pgconn.PgError{Code: "40P01"}, store.ErrUnavailable},
		"disk full":               {&pgconn.PgError{Code: "53100"}, store.ErrUnavailable},
		"shutdown":                {&pgconn.PgError{Code: "57P01"}, store.ErrUnavailable},
		"statement timeout":       {&pgconn.PgError{Code: "57014"}, store.ErrUnavailable},
		"standby after fail-over": {&pgconn.PgError{Code: "25006"}, store.ErrUnavailable},
		"table is missing":        {&pgconn.PgError{Code: "42P01"}, store.ErrUnavailable},
		"connection lost":         {io.ErrUnexpectedEOF, store.ErrUnavailable},
		"deadline":                {context.DeadlineExceeded, store.ErrUnavailable},
		"no row":                  {pgx.ErrNoRows, store.ErrNotFound},
		"fenced":                  {store.ErrFenced, store.ErrFenced},
		"rejected before sending": {rejected("invalid JSON"), store.ErrRejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := wrap("admit", c.err)
			for _, sentinel := range []error{store.ErrRejected, store.ErrUnavailable, store.ErrNotFound, store.ErrFenced} {
				require.Equal(t, errors.Is(c.want, sentinel), errors.Is(got, sentinel), "%v is %v", got, sentinel)
			}
			require.ErrorContains(t, got, "admit: ")
		})
	}
	require.NoError(t, wrap("admit", nil))
}

func TestWrap_KeepsContentOutOfTheText(t *testing.T) {
	t.Parallel()
	err := wrap("admit", &pgconn.PgError{Code: "22P02", Message: "token secret is invalid", Detail: "secret", ConstraintName: "c"})
	require.EqualError(t, err, "admit: store: content rejected: SQLSTATE 22P02 c")
}

func TestWrap_MovedOffsetsNameTheirPartitions(t *testing.T) {
	t.Parallel()
	for detail, want := range map[string][]int{"{3,17}": {3, 17}, "{0}": {0}, "{}": nil} {
		var moved *store.OffsetMovedError
		err := wrap("admit", &pgconn.PgError{Code: "HE001", Detail: detail})
		require.ErrorAs(t, err, &moved)
		require.Equal(t, want, moved.Partitions)
		require.NotErrorIs(t, err, store.ErrRejected)
	}
}
