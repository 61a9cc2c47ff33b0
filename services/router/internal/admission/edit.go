package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// edit replaces the text of a message whose run has not ended. It starts no run: a worker that has read the message keeps
// the text that it has.
func (a *Admitter) edit(ctx context.Context, c *candidate) error {
	if c.event.BlobRef != "" { // the new text is in an object, which admission does not read
		c.ignored = ignoredLarge
		return nil
	}
	target := event.UID(c.event.Tenant, c.event.Source, c.event.PlatformMessageID, event.KindMessage, "")
	row, err := a.Store.FindInbox(ctx, c.event.SKey, target)
	switch {
	case errors.Is(err, store.ErrNotFound):
		c.ignored = ignoredUnknown
		return nil
	case err != nil:
		return fmt.Errorf("find the edited message: %w", err)
	case row.Kind != store.KindUser:
		c.ignored = ignoredKind
		return nil
	}
	var m event.Message
	if err := json.Unmarshal(row.Body, &m); err != nil {
		c.bury(fmt.Errorf("edit of a message that cannot be read: %w", err))
		return nil
	}
	if c.ignored = revise(&m, target, c.event); c.ignored != "" {
		return nil
	}
	body, err := json.Marshal(&m)
	if err != nil {
		return fmt.Errorf("encode edited body: %w", err)
	}
	c.row.Edit = &store.InboxEdit{Seq: row.Seq, Body: body}
	return nil
}

// revise changes the text of m, or of its item target, to that of the edit. It returns why there is nothing to change.
func revise(m *event.Message, target string, edit *event.Message) reason {
	order := compareVersions(edit.EditVersion, m.EditVersion)
	if len(m.ItemUIDs) > 0 {
		if order < 0 {
			return ignoredOld
		}
		return reviseItem(m, target, edit)
	}
	switch {
	case order <= 0:
		return ignoredOld
	case edit.Text == m.Text:
		return ignoredUnchanged
	}
	m.Text, m.EditVersion = edit.Text, edit.EditVersion
	if len(m.Attachments) == 1 && m.Attachments[0].Caption != "" {
		m.Attachments[0].Caption = edit.Text
	}
	return ""
}

// reviseItem changes a caption of an album. Its items share one version, so an equal one may belong to another item.
func reviseItem(m *event.Message, target string, edit *event.Message) reason {
	i := slices.IndexFunc(m.Attachments, func(a event.Attachment) bool { return a.ItemUID == target })
	switch {
	case i < 0:
		return ignoredUnknown
	case m.Attachments[i].Caption == edit.Text:
		return ignoredUnchanged
	}
	m.Attachments[i].Caption, m.EditVersion = edit.Text, edit.EditVersion
	m.Text = event.Captions(m.Attachments)
	return ""
}

// compareVersions compares as numbers what are numbers, else as text; a message that was never edited has the lowest
// version.
func compareVersions(a, b string) int {
	x, xOK := new(big.Int).SetString(a, 10)
	y, yOK := new(big.Int).SetString(b, 10)
	if xOK && yOK {
		return x.Cmp(y)
	}
	return cmp.Compare(a, b)
}
