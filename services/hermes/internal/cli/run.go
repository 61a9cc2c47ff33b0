package cli

import (
	"net/url"

	"github.com/spf13/cobra"
)

func newRun(e *env) *cobra.Command {
	var r remote
	cmd := group("run", "Kill a run",
		e.act(&r, "kill RUN", "End a run as dead; its messages become a dead letter and the session goes on", "run id", func(id string) request {
			return post("/v1/operator/runs/"+url.PathEscape(id)+"/kill", nil, said("killed: the user got an apology, the messages are in the dead letters"))
		}),
	)
	r.flags(cmd)
	return cmd
}
