package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
)

// The platforms whose channels can be configured; each is a package below pkg/channel.
const (
	platformWebhook  = "webhook"
	platformTelegram = "telegram"
)

func (c Config) validateChannels(p *problems) {
	byProfile := map[string]string{}
	for _, name := range sortedKeys(c.Channels) {
		key, v := "channels."+name, c.Channels[name]
		if err := bus.CheckToken("channels", name); err != nil {
			*p = append(*p, err)
		}
		c.checkOwner(p, key, v.Tenant, v.Profile)
		if err := event.CheckPolicy(key+".busy_policy", v.BusyPolicy); err != nil {
			*p = append(*p, err)
		}
		switch v.Platform {
		case platformWebhook:
			c.checkWebhook(p, key+".webhook", v.Webhook)
		case platformTelegram:
			checkTelegram(p, key+".telegram", v.Telegram.WithDefaults())
		default:
			p.add(key+".platform", "%q is not known, %s and %s are", v.Platform, platformWebhook, platformTelegram)
		}
		pair := v.TenantName() + "\x00" + v.Platform + "\x00" + v.ProfileName()
		if other, taken := byProfile[pair]; taken && !c.Profiles[v.ProfileName()].ShareSessions {
			p.add(key+".profile", "%q already answers channel %q of the same platform, so that their chats would share keys; "+
				"use another profile or set profiles.%s.share_sessions", v.ProfileName(), other, v.ProfileName())
		}
		byProfile[pair] = name
	}
}

func (c Config) checkOwner(p *problems, key, tenant, profile string) {
	if tenant = cmp.Or(tenant, DefaultTenant); !has(c.Tenants, tenant) {
		p.add(key+".tenant", "%q is not in tenants", tenant)
	}
	if profile = cmp.Or(profile, DefaultProfile); !has(c.Profiles, profile) {
		p.add(key+".profile", "%q is not in profiles", profile)
	}
}

func (c Config) checkWebhook(p *problems, key string, w Webhook) {
	switch {
	case len(w.Secrets) == 0 && !w.Unsigned:
		p.add(key+".secrets", "at least one is needed, or unsigned: true on a loopback address")
	case w.Unsigned && !Loopback(c.Ingress.Addr):
		p.add(key+".unsigned", "is only allowed while ingress.addr %s is a loopback address", c.Ingress.Addr)
	}
	if w.ReplyURL != "" {
		checkURL(p, key+".reply_url", w.ReplyURL, "http", "https")
		if !w.ReplySecret.Set() {
			p.add(key+".reply_secret", "is needed with reply_url")
		}
	}
	for _, f := range []struct{ name, value string }{
		{"text_pointer", w.TextPointer},
		{"conversation_pointer", w.ConversationPointer},
		{"user_pointer", w.UserPointer},
		{"id_pointer", w.IDPointer},
	} {
		if f.value != "" && !strings.HasPrefix(f.value, "/") {
			p.add(key+"."+f.name, "%q is no JSON pointer, it must begin with /", f.value)
		}
	}
}

func checkTelegram(p *problems, key string, t Telegram) {
	if !t.Token.Set() {
		p.add(key+".token", "must not be empty")
	}
	checkURL(p, key+".api_url", t.APIURL, "http", "https")
	switch t.Mode {
	case TelegramPoll:
		if t.WebhookURL != "" {
			p.add(key+".webhook_url", "is only for mode %s", TelegramWebhook)
		}
	case TelegramWebhook:
		if !t.WebhookSecret.Set() {
			p.add(key+".webhook_secret", "is needed with mode %s", TelegramWebhook)
		}
		if t.WebhookURL != "" {
			checkURL(p, key+".webhook_url", t.WebhookURL, "https", "http")
		}
	default:
		p.add(key+".mode", "%q is neither %s nor %s", t.Mode, TelegramPoll, TelegramWebhook)
	}
	checkWord(p, key+".groups", t.Groups, "mention", "always")
	checkWord(p, key+".streaming", t.Streaming, "auto", "off")
	checkIDs(p, key+".allow_users", t.AllowUsers)
	checkIDs(p, key+".allow_chats", t.AllowChats)
}

func checkIDs(p *problems, key string, ids []string) {
	for i, id := range ids {
		if id != "*" && !isNumber(id) {
			p.add(fmt.Sprintf("%s[%d]", key, i), "%q is neither a numeric id nor *", id)
		}
	}
}

func isNumber(id string) bool {
	_, err := strconv.ParseInt(id, 10, 64)
	return err == nil
}

func checkWord(p *problems, key, word string, known ...string) {
	if !slices.Contains(known, word) {
		p.add(key, "%q is not one of %s", word, strings.Join(known, ", "))
	}
}
