package telegrambot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/hermes-runtime/hermes/pkg/channel/telegram"
	"github.com/hermes-runtime/hermes/services/ingress/internal/poll"
)

// feed is the long poll of a bot.
type feed struct{ bot *Bot }

var errNoIDs = errors.New("no update has an id")

// Open ends the delivery to a webhook, which a channel that was one before leaves behind: with it nothing can be polled.
// A server that refuses that says with the first poll whether it matters.
func (f feed) Open(ctx context.Context) error {
	err := f.bot.once(ctx, f.bot.api.DeleteWebhook)
	if _, refused := errors.AsType[*telegram.APIError](err); refused {
		return nil
	}
	return err
}

// Fetch implements poll.Feed.
func (f feed) Fetch(ctx context.Context, offset int64, wait time.Duration) ([]poll.Update, error) {
	raws, err := f.bot.api.GetUpdates(ctx, offset, wait)
	if err != nil {
		return nil, classify(err)
	}
	updates := make([]poll.Update, 0, len(raws))
	for _, raw := range raws {
		id, err := telegram.UpdateID(raw)
		if err != nil { // nothing could confirm it but the id of another one
			f.bot.deps.Intake.Skip(ctx, f.bot.door, "", err)
			continue
		}
		updates = append(updates, f.update(ctx, id, raw))
	}
	if len(updates) == 0 && len(raws) > 0 {
		return nil, errNoIDs
	}
	return updates, nil
}

// update puts an update into the lane of its chat. Items of albums wait for each other, and for nobody else.
func (f feed) update(ctx context.Context, id int64, raw json.RawMessage) poll.Update {
	u := poll.Update{ID: id}
	events, err := telegram.Parse(raw, *f.bot.self.Load())
	if err != nil {
		f.bot.deps.Intake.Skip(ctx, f.bot.door, strconv.FormatInt(id, 10), err)
	}
	u.Take = func(ctx context.Context) error { return f.bot.take(ctx, events) }
	if len(events) > 0 && events[0].Album == "" {
		u.Lane = events[0].Source.ChatID
	}
	return u
}

// classify tells the poller what a refusal means.
func classify(err error) error {
	refusal, ok := errors.AsType[*telegram.APIError](err)
	switch {
	case !ok:
		return err
	case refusal.Code == http.StatusConflict:
		return fmt.Errorf("%w: %w", poll.ErrConflict, err)
	case refusal.RetryAfter > 0:
		return &poll.WaitError{After: refusal.RetryAfter, Err: err}
	default:
		return err
	}
}
