package intake

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// Channel is a configured account: who answers it, and how its session keys are built.
type Channel struct {
	Name, Tenant, Profile, Pool string
	Keys                        session.Options
	// Policy is what the messages do to a busy conversation; "" leaves it to the profile.
	Policy event.Policy
}

// NewChannel reads a channel of the configuration.
func NewChannel(name string, c config.Channel, cfg config.Config) (Channel, error) {
	profile, ok := cfg.Profiles[c.ProfileName()]
	if !ok {
		return Channel{}, fmt.Errorf("profile %q is not in profiles", c.ProfileName())
	}
	return Channel{
		Name: name, Tenant: c.TenantName(), Profile: c.ProfileName(), Pool: profile.WithDefaults().Pool,
		Keys: profile.KeyOptions(c.ProfileName()), Policy: c.BusyPolicy,
	}, nil
}

// Message begins the event of somebody who speaks in this channel.
func (c Channel) Message(src session.Source) *event.Message {
	key := session.Key(src, c.Keys)
	return &event.Message{
		Tenant: c.Tenant, SessionKey: key, SKey: session.SKey(c.Tenant, key), Profile: c.Profile, RunClass: c.Pool, Source: src,
		BusyPolicy: c.Policy,
	}
}

// AllowList says who may enter. "*" is everyone.
type AllowList struct {
	Users, Chats []string
}

// admits reports whether the speaker is on the list. In a group it is enough that the group is; a private chat has the
// id of its user, so the star of Chats does not mean it. chat is the canonical id, for groups that have moved.
func (l AllowList) admits(src session.Source, chat string) bool {
	switch {
	case slices.Contains(l.Users, "*"), src.UserID != "" && slices.Contains(l.Users, src.UserID):
		return true
	case src.ChatType != chatDM && slices.Contains(l.Chats, "*"):
		return true
	default:
		return slices.Contains(l.Chats, src.ChatID) || slices.Contains(l.Chats, chat)
	}
}

const chatDM = "dm"

// Door is a channel with the rule of who may enter.
type Door struct {
	Channel
	Allow AllowList
}

func (d *Door) address(src session.Source) store.Address {
	return store.Address{Tenant: d.Tenant, Platform: src.Platform, Account: src.Account, ID: src.ChatID}
}

// message is the event of an incoming one whose chat has the canonical id chat. Source and identity keep the id that
// the platform wrote, so that an alias that is learnt in between does not make a second message of a repetition.
func (d *Door) message(in channel.Incoming, chat string) *event.Message {
	canonical := in.Source
	canonical.ChatID = chat
	m := d.Message(canonical)
	m.Source = in.Source
	m.Kind, m.ReplyTo, m.SentAt, m.EditVersion = in.Kind, in.ReplyTo, in.SentAt, in.EditVersion
	m.Text, m.Attachments, m.Quote, m.Command = in.Text, slices.Clone(in.Attachments), in.Quote, in.Command
	m.PlatformMessageID, m.Group = in.MessageID, in.Album
	switch {
	case in.Press != nil: // one message can be pressed many times
		m.PlatformMessageID, m.Text = in.Press.ID, in.Press.Data
	case in.Command != nil: // as a person writes it at the other doors
		m.Text = "/" + in.Command.Name
		if in.Command.Args != "" {
			m.Text += " " + in.Command.Args
		}
	}
	m.UID = event.UID(m.Tenant, m.Source, m.PlatformMessageID, identityKind(m.Kind), m.EditVersion)
	if in.Album != "" {
		item := d.itemUID(in)
		for i := range m.Attachments {
			m.Attachments[i].ItemUID = item
		}
	}
	return m
}

// identityKind: whether a text is a command is our reading of it, so both have one identity.
func identityKind(k event.Kind) event.Kind {
	if k == event.KindCommand {
		return event.KindMessage
	}
	return k
}

// itemUID is the identity of a message that is an item of an album.
func (d *Door) itemUID(in channel.Incoming) string {
	return event.UID(d.Tenant, in.Source, in.MessageID, event.KindMessage, "")
}

// compareIDs orders message ids: those that are numbers by their value.
func compareIDs(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
