package cli

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
)

// heldRow is what a list of held partitions shows.
type heldRow struct {
	Partition     int
	Since, Choice string
	Offset        int64
	CopiedOffset  int64 `json:"copied_offset"`
}

const chooseHelp = `A partition is held when Postgres knows less than the log did: it was restored from a backup. Nothing of the partition is
answered until somebody chooses what happens to the messages between:
  answer         answer them all again
  store          store them without answering
  skip-answered  answer those of which no answer is known to have been sent in the last 24 hours`

func newPartition(e *env) *cobra.Command {
	var r remote
	list := &cobra.Command{
		Use: "list", Short: "List the partitions that are held", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.operate(cmd, &r, get("/v1/operator/partitions",
				table("held", "no partition is held", []string{"PARTITION", "SINCE", "OFFSET", "WAS", "CHOICE"}, func(h heldRow) []any {
					return []any{h.Partition, h.Since, h.Offset, h.CopiedOffset, orDash(&h.Choice)}
				})))
		},
	}
	choose := &cobra.Command{
		Use: "choose PARTITION answer|store|skip-answered", Short: "Choose what happens to a held partition", Long: chooseHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return fmt.Errorf("%w: %s needs a partition and a choice", errUsage, cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]string{"choice": args[1]}
			return e.operate(cmd, &r, post("/v1/operator/partitions/"+url.PathEscape(args[0])+"/choose", body,
				said("chosen: the router goes on within seconds")))
		},
	}
	cmd := group("partition", "Look at held partitions and choose what happens to them", list, choose)
	r.flags(cmd)
	return cmd
}
