package admission

import (
	"context"
	"fmt"
	"slices"

	"github.com/hermes-runtime/hermes/pkg/event"
)

// dropKnownItems takes out of an album what has been admitted before: platforms repeat its items one by one, and another
// ingress may have joined them in another way. An item that comes alone is an album of one.
func (a *Admitter) dropKnownItems(ctx context.Context, c *candidate) error {
	items := c.event.ItemUIDs
	if len(items) == 0 {
		items = []string{c.event.UID}
	}
	known, err := a.Store.KnownItems(ctx, c.event.SKey, items)
	switch {
	case err != nil:
		return fmt.Errorf("look for items of an album: %w", err)
	case len(known) == 0:
		return nil
	}
	left := withoutItems(*c.event, known)
	if len(left.ItemUIDs) == 0 {
		c.ignored = ignoredKnown
		return nil
	}
	c.row.Items = left.ItemUIDs
	return c.rewrite(&left)
}

// withoutItems returns the album without some of its items.
func withoutItems(m event.Message, items []string) event.Message {
	captioned := event.Captions(m.Attachments) != ""
	m.ItemUIDs = slices.DeleteFunc(slices.Clone(m.ItemUIDs), func(uid string) bool { return slices.Contains(items, uid) })
	m.Attachments = slices.DeleteFunc(slices.Clone(m.Attachments), func(at event.Attachment) bool {
		return at.ItemUID != "" && slices.Contains(items, at.ItemUID)
	})
	if captioned { // else the text belongs to none of them
		m.Text = event.Captions(m.Attachments)
	}
	return m
}
