package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakemodel"
)

// echo answers every question with itself and notes how many requests of one conversation were open at once.
type echo struct {
	hold time.Duration

	mu          sync.Mutex
	open        map[string]int
	maxParallel int
}

// reply expects messages of the form "<conversation>/<n>".
func (e *echo) reply(_ int, req fakemodel.Request) fakemodel.Reply {
	question := req.Last("user")
	conversation, _, _ := strings.Cut(question, "/")
	e.enter(conversation, 1)
	defer e.enter(conversation, -1)
	if e.hold > 0 {
		<-time.After(e.hold)
	}
	return fakemodel.Reply{Text: "answer " + question}
}

func (e *echo) enter(conversation string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open == nil {
		e.open = map[string]int{}
	}
	e.open[conversation] += n
	e.maxParallel = max(e.maxParallel, e.open[conversation])
}

func TestSpine_ThousandMessagesOverHundredSessions(t *testing.T) {
	t.Parallel()
	const sessions, each = 100, 10
	var e echo
	model := fakemodel.Start(t, e.reply)
	s := start(t, options{routers: 2, workers: 2, egress: 2, model: model.URL})

	var senders errgroup.Group
	senders.SetLimit(16)
	for c := range sessions {
		senders.Go(func() error {
			conversation := fmt.Sprintf("c%03d", c)
			for n := range each { // one after the other: the order that a person writes in
				text := fmt.Sprintf("%s/%d", conversation, n)
				if code, body := s.hook("id-"+text, conversation, text); code != http.StatusAccepted {
					return fmt.Errorf("%s: %d %s", text, code, body)
				}
			}
			return nil
		})
	}
	require.NoError(t, senders.Wait())

	s.awaitReplies(sessions*each, 120*time.Second)
	for c := range sessions {
		conversation := fmt.Sprintf("c%03d", c)
		var want []string
		for n := range each {
			want = append(want, fmt.Sprintf("answer %s/%d", conversation, n))
		}
		require.Equal(t, want, s.receiver.Shown(conversation), "once each, in order")
	}
	require.Equal(t, 1, e.maxParallel, "runs of a session never overlap")
	s.checkTiles()
	for _, r := range s.receiver.Transcript() {
		require.True(t, r.Signed)
	}
}

// awaitReplies waits until n messages have been shown.
func (s *stack) awaitReplies(n int, timeout time.Duration) {
	s.t.Helper()
	await.NoError(s.t, timeout, func() error {
		shown := 0
		for _, r := range s.receiver.Transcript() {
			if r.Shown {
				shown++
			}
		}
		if shown < n {
			return fmt.Errorf("%d of %d replies", shown, n)
		}
		return nil
	})
}

// checkTiles reads the invariants of the finished runs from Postgres: ranges tile the inbox, every row is covered once,
// out_seq has no gap, and time ranges of a session's runs do not overlap.
func (s *stack) checkTiles() {
	s.t.Helper()
	for name, query := range map[string]string{
		"ranges of runs tile the inbox": `select count(*) from (select from_seq, coalesce(lag(to_seq) over w, 0) as before
			from runs where state = 'done' window w as (partition by skey order by from_seq)) r where from_seq <> before + 1`,
		"each inbox row is covered by one run": `select count(*) from inbox i where (select count(*) from runs r
			where r.skey = i.skey and i.seq between r.from_seq and r.to_seq) <> 1`,
		"out_seq has no gaps":   `select count(*) from sessions s where s.out_seq <> (select count(*) from outbox o where o.skey = s.skey)`,
		"everything is settled": `select count(*) from sessions where state <> 'idle' or out_sent <> out_seq or done_seq <> last_seq`,
		"runs do not overlap in time": `select count(*) from (select started_at, lag(ended_at) over w as before
			from runs window w as (partition by skey order by first_gen)) r where started_at < before`,
		"no reply has two rows": `select count(*) from (select dkey from outbox group by dkey having count(*) > 1) d`,
	} {
		await.NoError(s.t, 10*time.Second, func() error {
			if n := s.count(query); n != 0 {
				return fmt.Errorf("%s: %d rows say no", name, n)
			}
			return nil
		})
	}
}

// count runs a query that returns one number.
func (s *stack) count(query string, args ...any) int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.postgres.URL())
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, conn.Close(ctx)) }()
	var n int
	require.NoError(s.t, conn.QueryRow(ctx, query, args...).Scan(&n))
	return n
}

// texts runs a query that returns one column of text.
func (s *stack) texts(query string, args ...any) []string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.postgres.URL())
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, conn.Close(ctx)) }()
	rows, err := conn.Query(ctx, query, args...)
	require.NoError(s.t, err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s.t, err)
	return texts
}

func TestRTR01_QueueKeepsEveryMessageInOrder(t *testing.T) {
	t.Parallel()
	e := echo{hold: 500 * time.Millisecond}
	model := fakemodel.Start(t, e.reply)
	s := start(t, options{routers: 2, workers: 2, model: model.URL})
	var want []string
	for n := 1; n <= 5; n++ { // m2 to m5 arrive while m1 runs
		text := fmt.Sprintf("s1/m%d", n)
		code, body := s.hook("id-"+text, "s1", text)
		require.Equal(t, http.StatusAccepted, code, body)
		want = append(want, "answer "+text)
	}
	s.awaitReplies(5, 30*time.Second)
	require.Equal(t, want, s.receiver.Shown("s1"))
	require.Equal(t, 1, e.maxParallel)
	var asked []string
	for _, r := range model.Requests() {
		asked = append(asked, "answer "+r.Last("user"))
	}
	require.Equal(t, want, asked, "one run for each message, in order")
	s.checkTiles()
}

func TestRTR10_ManySimultaneousMessagesForAnIdleSession(t *testing.T) {
	t.Parallel()
	const messages = 50
	var e echo
	model := fakemodel.Start(t, e.reply)
	s := start(t, options{routers: 3, workers: 5, model: model.URL})
	barrier := make(chan struct{})
	var wg sync.WaitGroup
	for n := range messages {
		wg.Go(func() {
			<-barrier
			text := fmt.Sprintf("s1/m%d", n)
			code, body := s.hook("id-"+text, "s1", text)
			if code != http.StatusAccepted {
				t.Errorf("%s: %d %s", text, code, body)
			}
		})
	}
	close(barrier)
	wg.Wait()
	s.awaitReplies(messages, 60*time.Second)
	require.Equal(t, 1, e.maxParallel)
	require.Equal(t, messages, s.count(`select count(*) from runs where state = 'done'`))
	require.Zero(t, s.count(`select count(*) from (select stream_seq, lag(stream_seq) over (order by seq) as before from inbox) i where stream_seq <= before`),
		"the order of runs is the order on the bus")
	seen := map[string]bool{}
	for _, text := range s.receiver.Shown("s1") {
		require.False(t, seen[text], text)
		seen[text] = true
	}
	require.Len(t, seen, messages)
	s.checkTiles()
}

func TestENG13_EveryIDIsAConversationOfItsOwnFromPublishToReply(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/client_ids.json")
	require.NoError(t, err)
	var ids []string
	require.NoError(t, json.Unmarshal(raw, &ids))
	require.Contains(t, ids, "a\r\nPUB x")
	model := fakemodel.Start(t, func(_ int, req fakemodel.Request) fakemodel.Reply {
		return fakemodel.Reply{Text: "answer " + req.Last("user")}
	})
	s := start(t, options{model: model.URL})
	for i, id := range ids {
		code, body := s.hook("same-event-id", id, fmt.Sprintf("question %d", i))
		require.Equal(t, http.StatusAccepted, code, "%q: %s", id, body)
	}
	s.awaitReplies(len(ids), 60*time.Second)
	for i, id := range ids {
		require.Equal(t, []string{fmt.Sprintf("answer question %d", i)}, s.receiver.Shown(id), "%q", id)
	}
	require.Equal(t, len(ids), s.count(`select count(*) from sessions`))
	require.Equal(t, 26, s.count(`select max(length(skey)) from sessions`))
	code, body := s.hook("id", "", "hello")
	require.Equal(t, http.StatusBadRequest, code, body)
	s.checkTiles()
}

func TestDuplicates_AreAnsweredOnce(t *testing.T) {
	t.Parallel()
	model := fakemodel.Start(t, new(echo).reply)
	s := start(t, options{routers: 2, model: model.URL})
	for range 3 {
		code, body := s.hook("same-id", "c", "c/1")
		require.Equal(t, http.StatusAccepted, code, body)
	}
	s.hook("other-id", "c", "c/2")
	s.awaitReplies(2, 30*time.Second)
	require.Equal(t, []string{"answer c/1", "answer c/2"}, s.receiver.Shown("c"))
	require.Equal(t, 2, s.count(`select count(*) from inbox`))
}

func TestPostgresDown_MessageIsAcceptedAndAnsweredLater(t *testing.T) {
	t.Parallel()
	model := fakemodel.Start(t, new(echo).reply)
	s := start(t, options{model: model.URL})
	s.hook("id-1", "c", "c/1")
	s.awaitReplies(1, 30*time.Second)

	require.NoError(t, s.postgres.Kill())
	code, body := s.hook("id-2", "c", "c/2")
	require.Equal(t, http.StatusAccepted, code, body)
	require.NoError(t, s.postgres.Restart(t.Context()))
	s.awaitReplies(2, 60*time.Second)
	require.Equal(t, []string{"answer c/1", "answer c/2"}, s.receiver.Shown("c"))
	s.checkTiles()
}

func TestBrokerDown_NothingIsAcknowledged(t *testing.T) {
	t.Parallel()
	model := fakemodel.Start(t, new(echo).reply)
	s := start(t, options{model: model.URL})
	require.NoError(t, s.nats.Shutdown())
	code, body := s.hook("id-1", "c", "c/1")
	require.Equal(t, http.StatusServiceUnavailable, code, body)
	var answer struct {
		Error struct{ Message, Type string }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &answer))
	require.NotEmpty(t, answer.Error.Message)

	require.NoError(t, s.nats.Restart())
	await.NoError(t, 30*time.Second, func() error {
		if code, body := s.hook("id-1", "c", "c/1"); code != http.StatusAccepted {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	s.awaitReplies(1, 30*time.Second)
	require.Equal(t, []string{"answer c/1"}, s.receiver.Shown("c"))
}
