package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hermes-runtime/hermes/pkg/config"
)

func newConfig(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Work with the configuration",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheck(e))
	return cmd
}

// checkResult is the JSON form of a check.
type checkResult struct {
	OK       bool     `json:"ok"`
	Problems []string `json:"problems"`
}

// errCheck says that problems were printed.
var errCheck = errors.New("the configuration has problems")

func newConfigCheck(e *env) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration: keys, values, relations and secrets",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			problems := check(path)
			if len(problems) == 0 {
				return e.print("ok", checkResult{OK: true, Problems: []string{}})
			}
			if err := e.print(strings.Join(problems, "\n"), checkResult{Problems: problems}); err != nil {
				return err
			}
			return fmt.Errorf("%w: %d", errCheck, len(problems))
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "configuration file (default: $"+config.EnvFile+")")
	return cmd
}

// check returns one line per problem.
func check(path string) []string {
	cfg, err := config.LoadProcess(path)
	if err == nil {
		err = errors.Join(cfg.Validate(), cfg.CheckSecrets())
	}
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}
