package pgstore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// ErrNotMigrated says that the schema is older than this binary.
var ErrNotMigrated = errors.New("pgstore: database is not migrated: run `hermes migrate`")

const (
	codeOffsetMoved = "HE001" // raised by engine_offset_moved
	codeDeadlock    = "40P01"
	codeNoTable     = "42P01"
)

// wrap turns an error of pgx into one of the port. It is the only place that knows SQLSTATEs.
func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, classify(err))
}

func classify(err error) error {
	var pg *pgconn.PgError
	var malformed *pgconn.ParseConfigError
	switch {
	case errors.Is(err, store.ErrRejected), errors.Is(err, store.ErrFenced), errors.As(err, &malformed):
		return err
	case errors.Is(err, pgx.ErrNoRows):
		return store.ErrNotFound
	case !errors.As(err, &pg):
		// No answer: the connection could not be made, was lost, or the deadline has passed.
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case pg.Code == codeOffsetMoved:
		return &store.OffsetMovedError{Partitions: movedPartitions(pg.Detail)}
	case contentRefused(pg.Code):
		// The server's text may quote the content, which must not get into logs.
		return rejected(strings.TrimSpace("SQLSTATE " + pg.Code + " " + pg.ConstraintName))
	default:
		// Classes 08, 40, 53 and 57, and what an operator has to repair (28, 42, 58, …): never the content's fault, so
		// nothing may be given up for it.
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
}

// contentRefused: cardinality, data, integrity and limits.
func contentRefused(code string) bool {
	return slices.Contains([]string{"21", "22", "23", "54"}, code[:min(2, len(code))])
}

func rejected(why string) error { return fmt.Errorf("%w: %s", store.ErrRejected, why) }

// movedPartitions reads an array of Postgres, "{3,17}".
func movedPartitions(detail string) []int {
	var out []int
	for f := range strings.SplitSeq(strings.Trim(detail, "{}"), ",") {
		if p, err := strconv.Atoi(f); err == nil { // "" of the empty array
			out = append(out, p)
		}
	}
	return out
}

func hasCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}
