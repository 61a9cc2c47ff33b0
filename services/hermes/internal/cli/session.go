package cli

import (
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

// sessionRow is what a list of sessions shows.
type sessionRow struct {
	SKey, Tenant, Profile, State string
	Gen                          int64
	RunID                        *string `json:"run_id"`
	LastSeq                      int64   `json:"last_seq"`
	DoneSeq                      int64   `json:"done_seq"`
	OutSeq                       int64   `json:"out_seq"`
	OutSent                      int64   `json:"out_sent"`
}

func newSession(e *env) *cobra.Command {
	var r remote
	cmd := group("session", "Look at sessions, pause and resume them",
		newSessionList(e, &r),
		e.act(&r, "show SKEY", "Show one session", "skey", func(id string) request {
			return get("/v1/operator/sessions/"+url.PathEscape(id), indented)
		}),
		e.act(&r, "pause SKEY", "Stop the session where it is; messages are kept", "skey", func(id string) request {
			return post("/v1/operator/sessions/"+url.PathEscape(id)+"/pause", nil, said("paused: messages are kept and nothing is answered"))
		}),
		e.act(&r, "resume SKEY", "Let a paused session go on", "skey", func(id string) request {
			return post("/v1/operator/sessions/"+url.PathEscape(id)+"/resume", nil, said("resumed"))
		}),
	)
	r.flags(cmd)
	return cmd
}

func newSessionList(e *env, r *remote) *cobra.Command {
	var tenant, state, after string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List sessions", Args: noArgs,
		Example: "  hermes session list --state running\n  hermes session list --state paused -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{}
			set(query, "tenant", tenant)
			set(query, "state", state)
			set(query, "after", after)
			query.Set("limit", strconv.Itoa(limit))
			head := []string{"SKEY", "TENANT", "PROFILE", "STATE", "GEN", "RUN", "UNCOVERED", "UNSENT"}
			return e.operate(cmd, r, get("/v1/operator/sessions?"+query.Encode(),
				table("sessions", "no sessions", head, func(s sessionRow) []any {
					return []any{s.SKey, s.Tenant, s.Profile, s.State, s.Gen, orDash(s.RunID), s.LastSeq - s.DoneSeq, s.OutSeq - s.OutSent}
				})))
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only of this tenant")
	cmd.Flags().StringVar(&state, "state", "", "idle, queued, running, waiting or paused")
	cmd.Flags().StringVar(&after, "after", "", "begin behind this skey")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many, at most 1000")
	return cmd
}

// set adds a parameter that is not empty.
func set(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}
