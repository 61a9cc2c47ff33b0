package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore"
)

func newMigrate(e *env) *cobra.Command {
	var path, url string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create or update the tables in Postgres",
		Long:  "Applies the migrations that are not applied yet. Several at once are safe: they wait for each other.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.LoadProcess(path)
			if err != nil {
				return err
			}
			if url != "" {
				cfg.Postgres.URL = url
			}
			password, err := cfg.Postgres.Password.Value()
			if err != nil {
				return fmt.Errorf("postgres.password: %w", err)
			}
			db := pgstore.Config{URL: cfg.Postgres.URL, Password: password}
			pending, err := pgstore.Pending(cmd.Context(), db)
			if err != nil {
				return err
			}
			if err := pgstore.Migrate(cmd.Context(), db); err != nil {
				return err
			}
			text := "the database is up to date"
			if len(pending) > 0 {
				text = fmt.Sprintf("applied migrations: %v", pending)
			}
			return e.print(text, map[string]any{"applied": append([]int64{}, pending...)})
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "configuration file (default: $"+config.EnvFile+")")
	cmd.Flags().StringVar(&url, "postgres", "", "database URL (default: postgres.url of the configuration)")
	return cmd
}
