package cli

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
)

// workerRow is what a list of workers shows.
type workerRow struct {
	ID            string
	Slots, Used   int
	Draining      bool
	SilentSeconds float64 `json:"silent_seconds"`
}

func newWorker(e *env) *cobra.Command {
	var r remote
	list := &cobra.Command{
		Use: "list", Short: "List workers, their slots and when they were last heard of", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.operate(cmd, &r, get("/v1/operator/workers",
				table("workers", "no workers", []string{"WORKER", "USED", "SLOTS", "DRAINING", "SILENT"}, func(w workerRow) []any {
					return []any{w.ID, w.Used, w.Slots, w.Draining, fmt.Sprintf("%.0fs", w.SilentSeconds)}
				})))
		},
	}
	cmd := group("worker", "Look at workers, drain one", list,
		e.act(&r, "drain WORKER", "Take no more runs and hand over those in hand; the process stays up", "worker id", func(id string) request {
			return post("/v1/operator/workers/"+url.PathEscape(id)+"/drain", nil, said("draining"))
		}),
	)
	r.flags(cmd)
	return cmd
}
