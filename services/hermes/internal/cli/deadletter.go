package cli

import (
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

// letterRow is what a list of dead letters shows.
type letterRow struct {
	ID, Kind, Ref, Reason string
	CreatedAt             string `json:"created_at"`
	Replays               int
}

func newDeadLetter(e *env) *cobra.Command {
	var r remote
	cmd := group("dead-letter", "Look at what was given up, replay it", newLetterList(e, &r),
		e.act(&r, "show ID", "Show one with what it holds", "id", func(id string) request {
			return get("/v1/operator/dead-letters/"+url.PathEscape(id), indented)
		}),
		e.act(&r, "replay ID", "Send once more what it holds, as new messages or as a new reply", "id", func(id string) request {
			return post("/v1/operator/dead-letters/"+url.PathEscape(id)+"/replay", nil, said("replayed"))
		}),
	)
	r.flags(cmd)
	return cmd
}

func newLetterList(e *env, r *remote) *cobra.Command {
	var kind, before string
	var open bool
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, newest first", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{}
			set(query, "kind", kind)
			set(query, "before", before)
			if open {
				query.Set("open", "true")
			}
			query.Set("limit", strconv.Itoa(limit))
			head := []string{"ID", "KIND", "SINCE", "REPLAYS", "REF", "REASON"}
			return e.operate(cmd, r, get("/v1/operator/dead-letters?"+query.Encode(),
				table("dead_letters", "no dead letters", head, func(l letterRow) []any {
					return []any{l.ID, l.Kind, l.CreatedAt, l.Replays, l.Ref, l.Reason}
				})))
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "ingress (never admitted), run (given up) or out (not delivered)")
	cmd.Flags().BoolVar(&open, "open", false, "only those that were never replayed")
	cmd.Flags().StringVar(&before, "before", "", "begin behind this id")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many, at most 1000")
	return cmd
}
