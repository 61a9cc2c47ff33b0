package pgstore_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// plan returns the generic plan of a statement, the one that every connection keeps.
func plan(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	nulls := 0
	for strings.Contains(sql, fmt.Sprintf("$%d", nulls+1)) {
		nulls++
	}
	exec(t, conn, "prepare hot as "+sql)
	args := ""
	if nulls > 0 {
		args = "(" + strings.TrimSuffix(strings.Repeat("null,", nulls), ",") + ")"
	}
	rows, err := conn.Query(t.Context(), "explain execute hot"+args, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	exec(t, conn, "deallocate hot")
	return strings.Join(lines, "\n")
}

func planner(t *testing.T) *pgx.Conn {
	t.Helper()
	conn := connect(t, database(t))
	exec(t, conn, "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set jit = off")
	return conn
}

// scanned matches a scan of an index and its condition, if it has one.
var scanned = regexp.MustCompile(`Index (?:Only )?Scan (?:Backward )?(?:using|on) (\w+)[^\n]*\n(?:\s*Index Cond: ([^\n]*))?`)

// lookup is what the condition of a scan has to contain: what it leaves out, it reads in vain. The other indexes hold
// all active rows, or are none of a hot statement.
func lookup() map[string][]string {
	return map[string][]string{
		"sessions_pkey": {"(skey ="}, "runs_pkey": {"(run_id ="}, "runs_session_idx": {"(skey ="}, "tool_calls_pkey": {"(run_id ="},
		"inbox_pkey": {"(skey =", "(seq "}, "inbox_msg_uid_skey_key": {"(msg_uid ="},
		"messages_pkey": {"(skey =", "(run_gen ="}, "messages_conversation_idx": {"(skey =", "(session_id ="},
		"inbox_items_pkey": {"(skey =", "(item_uid ="}, "previews_pkey": {"(skey =", "(run_id ="},
		"aliases_pkey": {"(tenant =", "(platform =", "(account =", "(id ="}, "aliases_canonical_idx": {"(canonical ="},
		"outbox_pkey": {"(skey =", "(out_seq ="}, "outbox_dkey_skey_key": {"(dkey "},
		"outbox_run_idx": {"(run_id ="}, "conversations_pkey": {"(session_id ="},
	}
}

func TestHotStatements_LookUpEveryRowByItsKey(t *testing.T) {
	t.Parallel()
	conn := planner(t)
	requireLookups(t, conn, "empty tables")
	exec(t, conn, `insert into sessions (skey, tenant, session_key, session_id, part, state, gen, last_seq)
		select 's' || n, 't', 'k', gen_random_uuid(), n % 64, 'idle', 1, 1 from generate_series(1, 3000) n`)
	exec(t, conn, `insert into inbox (skey, seq, msg_uid, kind)
		select 's' || n % 100, n / 100, md5(n::text), 'user' from generate_series(100, 6000) n`)
	exec(t, conn, `insert into runs (run_id, skey, session_id, state, first_gen, last_gen)
		select gen_random_uuid(), 's' || n % 100, gen_random_uuid(), 'done', n / 100, 1 from generate_series(100, 6000) n`)
	exec(t, conn, `insert into messages (skey, run_gen, branch, n, session_id, run_id, role)
		select 's' || n % 100, n / 100, 0, 1, gen_random_uuid(), gen_random_uuid(), 'user' from generate_series(100, 6000) n`)
	exec(t, conn, `insert into outbox (skey, out_seq, dkey, platform)
		select 's' || n % 100, n / 100, md5(n::text), 'test' from generate_series(100, 6000) n`)
	exec(t, conn, `insert into inbox_items (skey, item_uid, seq)
		select 's' || n % 100, md5(n::text), n / 100 from generate_series(100, 6000) n`)
	exec(t, conn, `insert into aliases (tenant, platform, account, id, canonical)
		select 't', 'p', 'a' || n % 3, n, n % 100 from generate_series(1, 6000) n`)
	exec(t, conn, `insert into previews (skey, run_id, platform_id, egress)
		select 's' || n % 100, gen_random_uuid(), n, 'e' from generate_series(1, 6000) n`)
	requireLookups(t, conn, "grown tables without statistics")
	exec(t, conn, "analyze")
	requireLookups(t, conn, "grown tables")
}

func requireLookups(t *testing.T, conn *pgx.Conn, state string) {
	t.Helper()
	for name, sql := range map[string]string{
		"AdmitBatch": dbgen.AdmitBatch, "AdmitMessage": dbgen.AdmitMessage, "LockSessions": dbgen.LockSessions,
		"AdmitReset": dbgen.AdmitReset, "AdmitEdit": dbgen.AdmitEdit, "Handover": dbgen.Handover, "StopQueued": dbgen.StopQueued,
		"InboxAfter": dbgen.InboxAfter, "FindInbox": dbgen.FindInbox, "KnownItems": dbgen.KnownItems,
		"ResolveAliases": dbgen.ResolveAliases, "LearnAlias": dbgen.LearnAlias, "Stops": dbgen.Stops,
		"Suspend": dbgen.Suspend, "Takeover": dbgen.Takeover, "GiveUp": dbgen.GiveUp, "Reclaim": dbgen.Reclaim,
		"EndStopped": dbgen.EndStopped, "RunToolCalls": dbgen.RunToolCalls, "IsSuperseded": dbgen.IsSuperseded,
		"Previews": dbgen.Previews, "ForgetPreviews": dbgen.ForgetPreviews,
		"ClaimBatch": dbgen.ClaimBatch, "ClaimedInbox": dbgen.ClaimedInbox, "ClaimedToolCalls": dbgen.ClaimedToolCalls,
		"Checkpoint": dbgen.Checkpoint, "FinishBatch": dbgen.FinishBatch, "Finish": dbgen.Finish, "FinishState": dbgen.FinishState,
		"ClaimDeliveries": dbgen.ClaimDeliveries, "RecordPart": dbgen.RecordPart, "RetryDelivery": dbgen.RetryDelivery,
		"MarkDeliveries": dbgen.MarkDeliveries, "GetSubmission": dbgen.GetSubmission, "History": dbgen.History,
		"RunMessages": dbgen.RunMessages, "RunReplies": dbgen.RunReplies, "GetSession": dbgen.GetSession, "GetRun": dbgen.GetRun,
	} {
		got := plan(t, conn, sql)
		require.NotContains(t, got, "Seq Scan", "%s, %s", name, state)
		scans := scanned.FindAllStringSubmatch(got, -1)
		require.NotEmpty(t, scans, name)
		for _, scan := range scans {
			want := lookup()[scan[1]]
			require.NotEmpty(t, want, "%s, %s: %s is no index of a hot statement: %s", name, state, scan[1], got)
			for _, condition := range want {
				require.Contains(t, scan[2], condition, "%s, %s: %s is not looked up: %s", name, state, scan[1], got)
			}
		}
	}
	require.Contains(t, plan(t, conn, dbgen.History), "messages_conversation_idx", state)
	require.Contains(t, plan(t, conn, dbgen.RunMessages), "messages_pkey", state)
	require.Contains(t, plan(t, conn, dbgen.GetSubmission), "messages_pkey", state)
	require.Contains(t, plan(t, conn, dbgen.ClaimedInbox), "inbox_pkey", state)
	for _, sql := range []string{dbgen.FindInbox, dbgen.KnownItems} {
		require.Contains(t, plan(t, conn, sql), "inbox_msg_uid_skey_key", state)
		require.Contains(t, plan(t, conn, sql), "inbox_items_pkey", state)
	}
}

func TestSweeperStatements_UseTheSmallIndexes(t *testing.T) {
	t.Parallel()
	conn := planner(t)
	for _, sql := range []string{dbgen.QueuedRuns, dbgen.Backlog, dbgen.RunningRuns, dbgen.RunningByTenant, dbgen.StaleStops} {
		require.Contains(t, plan(t, conn, sql), "sessions_active_idx")
	}
	for _, sql := range []string{dbgen.WakeDue, dbgen.StaleStops} {
		require.Contains(t, plan(t, conn, sql), "sessions_wake_idx")
	}
	require.Regexp(t, "timers_(due|next)_idx", plan(t, conn, dbgen.DueTimers))
	require.Contains(t, plan(t, conn, dbgen.SettleGaps), "sessions_part_idx")
	require.Contains(t, plan(t, conn, dbgen.DueDeliveries), "outbox_due_idx")
	for sql, index := range map[string]string{
		dbgen.PurgeInbox: "inbox_created_idx", dbgen.PurgeOutbox: "outbox_created_idx", dbgen.PurgeRuns: "runs_created_idx",
	} {
		require.Contains(t, plan(t, conn, sql), index)
	}
	require.NotContains(t, plan(t, conn, dbgen.QueuedRuns), "Sort Key: q", "a page stops reading when it is full")
}
