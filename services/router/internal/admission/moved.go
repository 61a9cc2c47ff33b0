package admission

import (
	"context"
	"errors"
	"fmt"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/telemetry"
)

// movedSuffix tells the second publish of a message from its first one; its uid stays the same.
const movedSuffix = "#m"

// forward sends messages of chats that were found to have another, older id to the log of that session, whose history
// and order they belong to. Here they are only covered. A door that knows the alias builds the right key by itself: this
// is for what was under way when the alias was learnt.
func (a *Admitter) forward(ctx context.Context, batch []*candidate) error {
	var asked []*candidate
	var addresses []store.Address
	for _, c := range batch {
		if c.dead == nil && !c.ready && mayMove(c.event) {
			asked, addresses = append(asked, c), append(addresses, chatAddress(c.event))
		}
	}
	if len(asked) == 0 {
		return nil
	}
	ids, err := a.Store.ResolveAliases(ctx, addresses)
	if err != nil {
		return fmt.Errorf("resolve chats: %w", err)
	}
	for i, c := range asked {
		if err := a.redirect(ctx, c, ids[i]); err != nil {
			return fmt.Errorf("forward to the session of a moved chat: %w", err)
		}
	}
	return nil
}

// mayMove reports whether the platform gives chats new ids; those of the other platforms are chosen by clients.
func mayMove(m *event.Message) bool {
	return m.Source.ChatID != "" && m.Source.Platform != event.PlatformAPI && m.Source.Platform != webhook.Platform
}

func chatAddress(m *event.Message) store.Address {
	return store.Address{Tenant: m.Tenant, Platform: m.Source.Platform, Account: m.Source.Account, ID: m.Source.ChatID}
}

// redirect publishes the message under the key of the chat's canonical id and waits until it is stored there. Source and
// uid keep the id that the platform wrote. Repeating it is safe: the inbox of that session takes a uid once.
func (a *Admitter) redirect(ctx context.Context, c *candidate, chatID string) error {
	m, src := *c.event, c.event.Source
	if chatID == src.ChatID {
		return nil
	}
	src.ChatID = chatID
	m.SessionKey = session.Key(src, a.KeyOptions(m.Profile))
	m.SKey = session.SKey(m.Tenant, m.SessionKey)
	if m.SKey == c.event.SKey { // its door knew
		return nil
	}
	data, err := event.Encode(&m)
	if err == nil {
		err = a.republish(ctx, c, bus.Msg{Subject: bus.IngestSubject(m.Tenant, m.SKey), ID: m.UID + movedSuffix, Data: data})
	}
	switch {
	case errors.Is(err, bus.ErrTooLarge):
		c.bury(err)
		return nil
	case err != nil:
		return err
	}
	c.row.Kind, c.row.WantsRun, c.row.EndsCollect, c.row.Items, c.ready = store.KindMoved, false, false, nil, true
	return nil
}

func (a *Admitter) republish(ctx context.Context, c *candidate, msg bus.Msg) error {
	ctx, span := telemetry.StartPublish(event.WithTraceparent(ctx, c.traceparent), a.Tracer, telemetry.TemplateIngest, &msg)
	_, err := a.Log.Publish(ctx, msg)
	telemetry.EndSpan(span, err)
	return err
}
