package admission

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// shownConversations is how many conversations /resume offers.
const shownConversations = 10

// resume lists the conversations of the session, or takes one of them up again: a fence as that of /new, but for the
// conversation that comes next.
func (a *Admitter) resume(ctx context.Context, c *candidate) error {
	all, err := a.Store.Conversations(ctx, c.event.SKey, shownConversations)
	if err != nil {
		return fmt.Errorf("read conversations: %w", err)
	}
	args := strings.TrimSpace(c.event.Command.Args)
	if args == "" {
		c.reply(conversationsText(all))
		return nil
	}
	chosen, ok := choose(all, args)
	if !ok {
		c.reply(noConversationText(args))
		return nil
	}
	running, dropped, err := a.unanswered(ctx, c.event.SKey)
	if err != nil {
		return err
	}
	c.row.Reset, c.row.Resume, c.row.SessionID = true, &store.Resumption{}, chosen.ID
	c.reply(resumedText(chosen, running, dropped))
	return nil
}

// choose finds a conversation by its number in the list, or by the end of its id.
func choose(all []store.Conversation, args string) (store.Conversation, bool) {
	if n, err := strconv.Atoi(args); err == nil && n >= 1 && n <= len(all) {
		return all[n-1], true
	}
	var found []store.Conversation
	for _, c := range all {
		if len(args) >= len(conversation(uuid.Max)) && strings.HasSuffix(c.ID.String(), strings.ToLower(args)) {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		return store.Conversation{}, false
	}
	return found[0], true
}

func conversationsText(all []store.Conversation) string {
	if len(all) == 0 {
		return "There is no conversation yet."
	}
	var b strings.Builder
	b.WriteString("**Conversations**, newest first\n")
	for i, c := range all {
		current := ""
		if c.EndedAt.IsZero() {
			current = ", the current one"
		}
		fmt.Fprintf(&b, "%d. %s · since %s · %s%s\n", i+1, conversation(c.ID), day(c), turns(c.Runs), current)
	}
	b.WriteString("\n`/resume` and a number takes one up again.")
	return b.String()
}

func day(c store.Conversation) string {
	if c.StartedAt.IsZero() {
		return "just now"
	}
	return c.StartedAt.UTC().Format("2 Jan 15:04 UTC")
}

func turns(n int) string {
	if n == 1 {
		return "1 turn"
	}
	return strconv.Itoa(n) + " turns"
}

func noConversationText(args string) string {
	return fmt.Sprintf("There is no conversation `%s`. /resume lists them.", quoted(args))
}

func resumedText(c store.Conversation, running bool, dropped int) string {
	return fmt.Sprintf("Conversation %s goes on.%s", conversation(c.ID), droppedText(running, dropped))
}
