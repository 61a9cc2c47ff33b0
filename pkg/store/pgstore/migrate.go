package pgstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// A process that finds another one migrating asks again every lockPeriod seconds, lockTries times.
const (
	lockPeriod = 1
	lockTries  = 300
)

// Migrate brings the schema up to date. Any number of processes may do so at once, one of them migrates.
func Migrate(ctx context.Context, cfg Config) (err error) {
	db, err := cfg.open()
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer func() { err = wrap("migrate", errors.Join(err, db.Close())) }()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(lockPeriod, lockTries))
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// Pending returns the versions of the migrations that the database lacks. It changes nothing. A database that is ahead
// of this binary lacks none: during a rolling upgrade old processes run on the new schema.
func Pending(ctx context.Context, cfg Config) ([]int64, error) {
	applied, err := appliedVersions(ctx, cfg)
	if err != nil {
		return nil, wrap("read migrations", err)
	}
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	var pending []int64
	for _, f := range files {
		version, err := goose.NumericComponent(f.Name())
		if err != nil {
			return nil, fmt.Errorf("read migrations: %w", err)
		}
		if !slices.Contains(applied, version) {
			pending = append(pending, version)
		}
	}
	return pending, nil
}

// appliedVersions reads the table of versions; a database without it has none. A goose.Provider would create it.
func appliedVersions(ctx context.Context, cfg Config) (versions []int64, err error) {
	db, err := cfg.open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	table, err := database.NewStore(database.DialectPostgres, goose.DefaultTablename)
	if err != nil {
		return nil, err
	}
	list, err := table.ListMigrations(ctx, db)
	if err != nil && !hasCode(err, codeNoTable) {
		return nil, err
	}
	for _, m := range list {
		versions = append(versions, m.Version)
	}
	return versions, nil
}

func (c Config) open() (*sql.DB, error) {
	conn, err := pgx.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	if c.Password != "" {
		conn.Password = c.Password
	}
	conn.ConnectTimeout = connectTimeout
	return stdlib.OpenDB(*conn), nil
}
