package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakemodel"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/telegram"
)

// door is one way into Hermes: what a person says there and what that person is shown.
type door struct {
	name string
	say  func(text string)
	// shown returns the answers and notices so far, in order.
	shown func() []string
}

// controlled is a stack with three routers and every door, behind a model that holds the questions it is told to.
type controlled struct {
	*stack
	model *fakemodel.Server
	doors []door

	mu   sync.Mutex
	hold map[string]chan struct{}
	// script, if not nil, is asked before a question is answered with itself.
	script func(req fakemodel.Request) (reply fakemodel.Reply, scripted bool)
}

func startControlled(t *testing.T, workers int) *controlled {
	t.Helper()
	return startDoors(t, options{workers: workers, noWorker: workers == 0})
}

// startWithPolicy starts a stack whose profile has a busy policy; options are more of the profile, as flow YAML.
func startWithPolicy(t *testing.T, policy, more string) *controlled {
	t.Helper()
	profile := "busy_policy: " + policy
	if more != "" {
		profile += ", " + more
	}
	return startDoors(t, options{workers: 2, profile: profile})
}

func startDoors(t *testing.T, o options) *controlled {
	t.Helper()
	c := &controlled{hold: map[string]chan struct{}{}}
	c.model = fakemodel.Start(t, c.reply)
	bot := telegram.NewWith(t, telegram.Options{Token: telegramToken})
	o.routers, o.model, o.telegram = 3, c.model.URL, bot.URL()
	c.stack = start(t, o)
	c.doors = []door{c.webhookDoor(), c.apiDoor(), c.telegramDoor(bot)}
	return c
}

// reply answers with the question; one that begins with "hold" is answered when it is let go.
func (c *controlled) reply(_ int, req fakemodel.Request) fakemodel.Reply {
	question := newest(req)
	c.mu.Lock()
	gate := c.hold[question]
	if gate == nil && strings.HasPrefix(question, "hold") {
		gate = make(chan struct{})
		c.hold[question] = gate
	}
	defer c.mu.Unlock()
	if c.script != nil {
		if reply, scripted := c.script(req); scripted {
			return reply
		}
	}
	return fakemodel.Reply{Text: "answer " + question, Hold: gate}
}

// newest is the message that a call is about. One that was stopped before it was answered stands before it, in the same
// turn of the user.
func newest(req fakemodel.Request) string {
	all := strings.Split(strings.TrimSpace(req.Last("user")), "\n")
	return all[len(all)-1]
}

// asked counts the calls for a question.
func (c *controlled) asked(question string) int {
	n := 0
	for _, r := range c.model.Requests() {
		if newest(r) == question {
			n++
		}
	}
	return n
}

func (c *controlled) awaitAsked(question string) {
	c.t.Helper()
	await.NoError(c.t, 60*time.Second, func() error {
		if c.asked(question) == 0 {
			return fmt.Errorf("%q has not reached the model", question)
		}
		return nil
	})
}

func (c *controlled) awaitShown(d door, want ...string) {
	c.t.Helper()
	await.NoError(c.t, 60*time.Second, func() error {
		if got := d.shown(); !slices.Equal(want, got) {
			return fmt.Errorf("%s: shown %q, want %q", d.name, got, want)
		}
		return nil
	})
}

func (c *controlled) webhookDoor() door {
	n := 0
	return door{
		name: "webhook",
		say: func(text string) {
			n++
			code, body := c.hook(fmt.Sprintf("control-%d", n), "control", text)
			require.Equal(c.t, http.StatusAccepted, code, body)
		},
		shown: func() []string { return c.receiver.Shown("control") },
	}
}

// apiDoor reads the answers of every message that it sent.
func (c *controlled) apiDoor() door {
	header := http.Header{"Authorization": {"Bearer " + apiKey}, "Content-Type": {"application/json"}}
	var ids []string
	return door{
		name: "api",
		say: func(text string) {
			raw, err := json.Marshal(map[string]string{"text": text})
			require.NoError(c.t, err)
			code, body, err := call(http.MethodPost, "http://"+c.api+"/v1/sessions/control/messages", string(raw), header)
			require.NoError(c.t, err)
			require.Equal(c.t, http.StatusAccepted, code, body)
			var a struct {
				MessageID string `json:"message_id"`
			}
			require.NoError(c.t, json.Unmarshal([]byte(body), &a))
			ids = append(ids, a.MessageID)
		},
		shown: func() []string { return c.outbox("api") },
	}
}

// outbox returns the texts of a platform's replies in order: what a client that reads its replies is given.
func (c *controlled) outbox(platform string) []string {
	return c.texts(`select p->>'markdown' from outbox, jsonb_array_elements(parts) p where platform = $1 order by skey, out_seq`, platform)
}

func (c *controlled) telegramDoor(bot *telegram.Server) door {
	return door{
		name:  "telegram",
		say:   func(text string) { bot.Say(telegramUser, telegramUser, text) },
		shown: func() []string { return bot.Answers(telegramUser) },
	}
}

func TestRTR06_StopOvertakesTheQueueThroughEveryDoor(t *testing.T) {
	t.Parallel()
	c := startControlled(t, 1)
	for _, d := range c.doors {
		t.Run(d.name, func(t *testing.T) {
			first := "hold " + d.name
			d.say(first)
			c.awaitAsked(first)
			d.say("second " + d.name)
			d.say("third " + d.name)
			d.say("/stop")
			c.awaitShown(d,
				"answer "+first,
				"Stopped. 2 messages are waiting.",
				"answer second "+d.name,
				"answer third "+d.name,
			)
			require.Equal(t, 1, c.asked(first))
			d.say("/stop")
			await.NoError(t, 60*time.Second, func() error {
				if shown := d.shown(); len(shown) < 5 || !strings.Contains(strings.ToLower(shown[4]), "nothing") {
					return fmt.Errorf("%s: %q", d.name, shown)
				}
				return nil
			})
			for _, r := range c.model.Requests() {
				require.NotContains(t, r.Last("user"), "/stop", "a command is never prompt text")
			}
		})
	}
	require.Equal(t, 3, c.count(`select count(*) from runs where state = 'cancelled'`))
	require.Equal(t, 6, c.count(`select count(*) from runs where state = 'done'`))
	c.checkControlled()
}

// checkControlled reads what must hold after any control: final runs tile the inbox and everything is settled.
func (c *controlled) checkControlled() {
	c.t.Helper()
	for name, query := range map[string]string{
		"ranges of runs tile the inbox": `select count(*) from (select from_seq, coalesce(lag(to_seq) over w, 0) as before
			from runs where state in ('done', 'failed', 'cancelled', 'dead') window w as (partition by skey order by from_seq)) r where from_seq <> before + 1`,
		"out_seq has no gaps":   `select count(*) from sessions s where s.out_seq <> (select count(*) from outbox o where o.skey = s.skey)`,
		"everything is settled": `select count(*) from sessions where state <> 'idle' or out_sent <> out_seq or want_seq > done_seq`,
		"no reply has two rows": `select count(*) from (select dkey from outbox group by dkey having count(*) > 1) d`,
	} {
		await.NoError(c.t, 20*time.Second, func() error {
			if n := c.count(query); n != 0 {
				return fmt.Errorf("%s: %d rows say no", name, n)
			}
			return nil
		})
	}
}

func TestStopAll_DropsWhatWaits(t *testing.T) {
	t.Parallel()
	c := startControlled(t, 1)
	for _, d := range c.doors {
		first := "hold " + d.name
		d.say(first)
		c.awaitAsked(first)
		d.say("second " + d.name)
		d.say("third " + d.name)
		d.say("/stop all")
		c.awaitShown(d, "answer "+first, "Stopped. 2 waiting messages were dropped.")
		d.say("fourth " + d.name)
		c.awaitShown(d, "answer "+first, "Stopped. 2 waiting messages were dropped.", "answer fourth "+d.name)
		require.Zero(t, c.asked("second "+d.name))
		require.Zero(t, c.asked("third "+d.name))
	}

	api := c.doors[1] // a client that waits for the answer to its stop is not kept until the next turn
	api.say("hold once more")
	c.awaitAsked("hold once more")
	code, body, err := call(http.MethodPost, "http://"+c.api+"/v1/sessions/control/messages?wait=60", `{"text": "/stop"}`,
		http.Header{"Authorization": {"Bearer " + apiKey}, "Content-Type": {"application/json"}})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, "Stopping.")
	c.checkControlled()
}

func TestRTR05_StopBeforeAWorkerHasBegun(t *testing.T) {
	t.Parallel()
	c := startControlled(t, 0)
	for _, d := range c.doors {
		d.say("first " + d.name)
	}
	await.NoError(t, 60*time.Second, func() error {
		if n := c.count(`select count(*) from sessions where state = 'queued'`); n != len(c.doors) {
			return fmt.Errorf("%d runs are queued", n)
		}
		return nil
	})
	for _, d := range c.doors {
		d.say("/stop")
		c.awaitShown(d, "Stopped.") // without any worker
	}
	c.run("worker", 9).awaitReady()
	for _, d := range c.doors {
		d.say("second " + d.name)
		c.awaitShown(d, "Stopped.", "answer second "+d.name)
		require.Zero(t, c.asked("first "+d.name))
	}
	c.checkControlled()
}

func TestRTR07_StopEndsTheRunThatWasCurrentAndNoOther(t *testing.T) {
	t.Parallel()
	const rounds = 15
	c := startControlled(t, 2)
	d := c.doors[1]
	for n := range rounds {
		first, second := fmt.Sprintf("hold %d", n), fmt.Sprintf("second %d", n)
		d.say(first)
		c.awaitAsked(first)
		d.say(second)
		var wg sync.WaitGroup
		wg.Go(func() { close(c.gate(first)) }) // run 1 ends while the stop is on its way
		wg.Go(func() { d.say("/stop") })
		wg.Wait()
		await.NoError(t, 60*time.Second, func() error {
			if open := c.count(`select count(*) from sessions where want_seq > done_seq or state <> 'idle'`); open != 0 {
				return fmt.Errorf("round %d: %d sessions are busy", n, open)
			}
			return nil
		})
	}
	require.Equal(t, 2*rounds, c.count(`select count(*) from runs`), "one for each message, none for a stop")
	cancelled := c.count(`select count(*) from runs where state = 'cancelled'`)
	require.LessOrEqual(t, cancelled, rounds, "a stop ends one run at most")
	confirmed := c.count(`select count(*) from outbox where parts->0->>'markdown' like 'Stopped.%'`)
	require.Equal(t, cancelled, confirmed, "every cancelled run is confirmed, and no other")
	require.Zero(t, c.count(`select count(*) from runs r where r.state = 'done' and not exists (
		select from outbox o where o.run_id = r.run_id and o.parts->0->>'markdown' like 'answer %')`), "a run that finished keeps its answer")
	c.checkControlled()
}

func (c *controlled) gate(question string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hold[question]
}

func TestNew_FencesTheRunOffAndBeginsAConversation(t *testing.T) {
	t.Parallel()
	c := startControlled(t, 1)
	for _, d := range c.doors {
		d.say("remember plum " + d.name)
		c.awaitShown(d, "answer remember plum "+d.name)
		first := "hold " + d.name
		d.say(first)
		c.awaitAsked(first)
		d.say("/new")
		await.NoError(t, 60*time.Second, func() error {
			if shown := d.shown(); len(shown) != 2 {
				return fmt.Errorf("%s: %q", d.name, shown)
			}
			return nil
		})
		close(c.gate(first)) // the old run may go on: it can say nothing more
		d.say("after " + d.name)
		await.NoError(t, 60*time.Second, func() error {
			if shown := d.shown(); len(shown) != 3 || shown[2] != "answer after "+d.name {
				return fmt.Errorf("%s: %q", d.name, shown)
			}
			return nil
		})
		requests := c.model.Requests()
		require.Len(t, withoutSystem(requests[len(requests)-1]), 1, "the new conversation knows nothing of the old one")
	}
	require.Equal(t, 3, c.count(`select count(*) from runs where state = 'cancelled'`))
	require.Zero(t, c.count(`select count(*) from messages m join runs r using (run_id) where r.state = 'cancelled' and m.role = 'assistant'`))
	c.checkControlled()
}

func withoutSystem(r fakemodel.Request) []fakemodel.Message {
	return slices.DeleteFunc(slices.Clone(r.Messages), func(m fakemodel.Message) bool { return m.Role == "system" })
}

func TestStatusAndHelp_ThroughEveryDoor(t *testing.T) {
	t.Parallel()
	c := startControlled(t, 1)
	for _, d := range c.doors {
		first := "hold " + d.name
		d.say(first)
		c.awaitAsked(first)
		d.say("second " + d.name)
		d.say("/status")
		await.NoError(t, 60*time.Second, func() error {
			if shown := d.shown(); len(shown) != 1 || !strings.Contains(shown[0], "1 message waiting") {
				return fmt.Errorf("%s: %q", d.name, shown)
			}
			return nil
		})
		d.say("/help")
		await.NoError(t, 60*time.Second, func() error {
			shown := d.shown()
			if len(shown) != 2 {
				return fmt.Errorf("%s: %q", d.name, shown)
			}
			for _, command := range []string{"/stop", "/new", "/status", "/help"} {
				if !strings.Contains(shown[1], command) {
					return fmt.Errorf("%s: %q does not list %s", d.name, shown[1], command)
				}
			}
			return nil
		})
		close(c.gate(first))
		await.NoError(t, 60*time.Second, func() error {
			if shown := d.shown(); len(shown) != 4 {
				return fmt.Errorf("%s: %q", d.name, shown)
			}
			return nil
		})
	}
	c.checkControlled()
}
