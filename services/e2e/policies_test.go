package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakemodel"
)

// awaitLike waits until the door has shown as many texts as there are patterns, each of which holds its pattern.
func (c *controlled) awaitLike(d door, patterns ...string) {
	c.t.Helper()
	await.NoError(c.t, recovery, func() error {
		shown := d.shown()
		if len(shown) != len(patterns) {
			return fmt.Errorf("%s: %d texts, want %d: %q", d.name, len(shown), len(patterns), shown)
		}
		for i, p := range patterns {
			if !strings.Contains(shown[i], p) {
				return fmt.Errorf("%s: text %d of %q does not hold %q", d.name, i, shown, p)
			}
		}
		return nil
	})
}

// awaitStored waits until that many messages of people are in the inbox.
func (c *controlled) awaitStored(kind string, n int) {
	c.t.Helper()
	await.NoError(c.t, recovery, func() error {
		if got := c.count(`select count(*) from inbox where kind = $1`, kind); got < n {
			return fmt.Errorf("%d rows of kind %s, want %d", got, kind, n)
		}
		return nil
	})
}

func TestRTR02_LatestAnswersTheNewestAndTellsTheOthersThroughEveryDoor(t *testing.T) {
	t.Parallel()
	c := startWithPolicy(t, "latest", "")
	for i, d := range c.doors {
		first := "hold " + d.name
		d.say(first)
		c.awaitAsked(first)
		for _, word := range []string{"second ", "third ", "fourth "} {
			d.say(word + d.name)
		}
		c.awaitStored("user", 4*(i+1))
		close(c.gate(first))
		c.awaitLike(d, "answer "+first, "replaced", "replaced", "answer fourth "+d.name)
		require.Zero(t, c.asked("second "+d.name))
		require.Zero(t, c.asked("third "+d.name))
	}
	require.Equal(t, 2*len(c.doors), c.count(`select count(*) from runs`))
	require.Equal(t, 2*len(c.doors), c.count(`select count(*) from messages where role = 'superseded'`), "the history knows them")
	c.checkControlled()
}

func TestSteer_ReachesTheRunningTurnThroughEveryDoor(t *testing.T) {
	t.Parallel()
	c := startWithPolicy(t, "steer", "")
	c.script = func(req fakemodel.Request) (fakemodel.Reply, bool) {
		all := said(req)
		if len(all) == 0 || !strings.HasPrefix(all[0], "hold") || req.Last("tool") != "" {
			return fakemodel.Reply{}, false
		}
		return fakemodel.Reply{Hold: c.hold[all[0]], Calls: []fakemodel.Call{{ID: "c1", Name: "current_time", Arguments: "{}"}}}, true
	}
	for i, d := range c.doors {
		first, second := "hold "+d.name, "more "+d.name
		d.say(first)
		c.awaitAsked(first)
		d.say(second)
		c.awaitStored("steer", i+1)
		close(c.gate(first))
		c.awaitLike(d, second)
		last := c.lastRequest()
		require.NotEmpty(t, last.Last("tool"))
		require.Contains(t, last.Last("user"), second, "it came in at the step after the tool")
		require.Equal(t, "user", last.Messages[len(last.Messages)-1].Role, "behind the results of the step")
	}
	require.Equal(t, len(c.doors), c.count(`select count(*) from runs`), "one turn for both messages")
	c.checkControlled()
}

func TestSteer_ThatComesTooLateIsTheNextTurn(t *testing.T) {
	t.Parallel()
	c := startWithPolicy(t, "steer", "")
	d := c.doors[0]
	d.say("hold on")
	c.awaitAsked("hold on")
	d.say("late one")
	d.say("late two")
	c.awaitStored("steer", 2)
	close(c.gate("hold on"))
	await.NoError(t, recovery, func() error {
		if shown := d.shown(); len(shown) != 2 || !strings.HasPrefix(shown[1], "answer ") || !strings.Contains(shown[1], "late two") {
			return fmt.Errorf("%q", shown)
		}
		return nil
	})
	require.Equal(t, 2, c.count(`select count(*) from runs`), "what was left over is one turn")
	c.checkControlled()
}

func TestInterrupt_TheNewMessageGoesOnInPlaceOfTheOldThroughEveryDoor(t *testing.T) {
	t.Parallel()
	c := startWithPolicy(t, "interrupt", "")
	for _, d := range c.doors {
		first := "hold " + d.name
		d.say(first)
		c.awaitAsked(first)
		d.say("instead " + d.name)
		c.awaitShown(d, "answer instead "+d.name)
		require.True(t, slices.ContainsFunc(c.lastRequest().Messages, func(m fakemodel.Message) bool {
			return strings.Contains(m.Content, first)
		}), "the history knows what was interrupted")
	}
	require.Equal(t, len(c.doors), c.count(`select count(*) from runs where state = 'cancelled'`))
	require.Equal(t, len(c.doors), c.count(`select count(*) from runs where state = 'done'`))
	c.checkControlled()
}

func TestReject_SaysThatItIsBusyThroughEveryDoor(t *testing.T) {
	t.Parallel()
	c := startWithPolicy(t, "reject", "")
	for i, d := range c.doors {
		first := "hold " + d.name
		d.say(first)
		c.awaitAsked(first)
		if d.name == "api" { // a client that waits is told so by its status
			code, body, err := call(http.MethodPost, "http://"+c.api+"/v1/sessions/control/messages?wait=60", `{"text": "refused"}`,
				http.Header{"Authorization": {"Bearer " + apiKey}, "Content-Type": {"application/json"}})
			require.NoError(t, err)
			require.Equal(t, http.StatusTooManyRequests, code, body)
		} else {
			d.say("refused " + d.name)
		}
		c.awaitStored("refused", i+1)
		c.awaitLike(d, "busy")
		close(c.gate(first))
		c.awaitLike(d, "busy", "answer "+first)
		d.say("again " + d.name)
		c.awaitLike(d, "busy", "answer "+first, "answer again "+d.name)
	}
	require.Equal(t, 2*len(c.doors), c.count(`select count(*) from runs`))
	c.checkControlled()
}

func TestCollect_WhatComesInABurstIsOneTurnThroughEveryDoor(t *testing.T) {
	t.Parallel()
	c := startWithPolicy(t, "collect", "collect: {quiet: 3s, max: 30s}")
	for i, d := range c.doors {
		for _, word := range []string{"one ", "two ", "three "} {
			d.say(word + d.name)
		}
		await.NoError(t, recovery, func() error {
			if shown := d.shown(); len(shown) != 1 || !strings.Contains(shown[0], "three "+d.name) {
				return fmt.Errorf("%q", shown)
			}
			return nil
		})
		prompt := c.lastRequest().Last("user")
		for _, word := range []string{"one ", "two ", "three "} {
			require.Contains(t, prompt, word+d.name)
		}
		require.Equal(t, i+1, c.count(`select count(*) from runs`))
	}
	c.checkControlled()
}

func TestRTR08_ReceiptsAreHonestWhenTooMuchWaitsAndWhenRedisIsDown(t *testing.T) {
	t.Parallel()
	c := startWithPolicy(t, "queue", "limits: {pending: 3}")
	for _, d := range c.doors {
		first := "hold " + d.name
		d.say(first)
		c.awaitAsked(first)
		for _, word := range []string{"second ", "third ", "fourth "} {
			d.say(word + d.name)
		}
		d.say("fifth " + d.name)
		c.awaitLike(d, "not kept")
		close(c.gate(first))
		c.awaitLike(d, "not kept", "answer "+first, "answer second "+d.name, "answer third "+d.name, "answer fourth "+d.name)
		require.Zero(t, c.asked("fifth "+d.name), "what was refused is never answered")
	}
	c.redis.Kill()
	d := c.doors[0]
	d.say("sixth")
	c.awaitLike(d, "not kept", "answer hold", "answer second", "answer third", "answer fourth", "answer sixth")
	require.NoError(t, c.redis.RestartEmpty())
	c.checkControlled()
}

func TestResume_TakesAnOlderConversationUpAgainThroughEveryDoor(t *testing.T) {
	t.Parallel()
	c := startControlled(t, 2)
	for _, d := range c.doors {
		d.say("remember plum " + d.name)
		c.awaitShown(d, "answer remember plum "+d.name)
		d.say("/new")
		c.awaitLike(d, "plum", "New conversation")
		d.say("hold " + d.name)
		c.awaitAsked("hold " + d.name)
		d.say("/resume")
		c.awaitLike(d, "plum", "New conversation", "2")
		d.say("/resume 2")
		c.awaitLike(d, "plum", "New conversation", "2", "dropped")
		close(c.gate("hold " + d.name)) // the run that was fenced off can say nothing more
		d.say("what was it " + d.name)
		c.awaitLike(d, "plum", "New conversation", "2", "dropped", "answer what was it "+d.name)
		require.True(t, slices.ContainsFunc(c.lastRequest().Messages, func(m fakemodel.Message) bool {
			return strings.Contains(m.Content, "remember plum "+d.name)
		}), "the old conversation goes on")
	}
	c.checkControlled()
}

// lastRequest is the newest call of the model.
func (c *controlled) lastRequest() fakemodel.Request {
	c.t.Helper()
	all := c.model.Requests()
	require.NotEmpty(c.t, all)
	return all[len(all)-1]
}

// said are the messages of the user in a request.
func said(req fakemodel.Request) []string {
	var texts []string
	for _, m := range req.Messages {
		if m.Role == "user" {
			texts = append(texts, m.Content)
		}
	}
	return texts
}
