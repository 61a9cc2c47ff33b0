package telegram

import (
	"math"
	"strings"
	"time"
)

// Rate is how many messages and edits one chat takes in a window of time. The zero value is no limit.
type Rate struct {
	N   int
	Per time.Duration
}

// checkRate refuses what comes too soon, and everything until the time that it then names has passed.
func (s *Server) checkRate(ch *chat, c *call) *apiError {
	if s.opts.ChatRate.N == 0 || strings.EqualFold(c.name, "sendChatAction") {
		return nil
	}
	now := time.Now()
	for len(ch.sends) > 0 && now.Sub(ch.sends[0]) >= s.opts.ChatRate.Per {
		ch.sends = ch.sends[1:]
	}
	if len(ch.sends) >= s.opts.ChatRate.N {
		ch.frozen = ch.sends[0].Add(s.opts.ChatRate.Per)
	}
	if wait := ch.frozen.Sub(now); wait > 0 {
		return Answer{RetryAfter: int(math.Ceil(wait.Seconds()))}.withDefaults().refusal()
	}
	ch.sends = append(ch.sends, now)
	return nil
}
