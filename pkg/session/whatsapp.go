package session

import (
	"regexp"
	"strings"
)

// Aliases returns the ids that are known to belong to the same WhatsApp user as id, in any order.
type Aliases func(id string) []string

// canonical replaces WhatsApp ids by one id per user. Other platforms' ids stay as they are.
func canonical(src Source, opt Options) Source {
	if src.Platform != "whatsapp" {
		return src
	}
	if src.isDM() {
		src.ChatID = canonicalWhatsApp(src.ChatID, opt.Aliases)
	}
	participant := src.Participant()
	if id := canonicalWhatsApp(participant, opt.Aliases); id != "" {
		participant = id
	}
	src.UserIDAlt, src.UserID = "", participant
	return src
}

var whatsAppID = regexp.MustCompile(`^[A-Za-z0-9@.+-]+$`)

// canonicalWhatsApp walks the aliases of a user breadth first and returns the shortest id, the smallest of equals. Ids
// with foreign characters are not followed: the original used them as file names.
func canonicalWhatsApp(id string, aliases Aliases) string {
	best := normalizeWhatsApp(id)
	seen := map[string]bool{best: true}
	for queue := []string{best}; len(queue) > 0; queue = queue[1:] {
		current := queue[0]
		if len(current) < len(best) || len(current) == len(best) && current < best {
			best = current
		}
		if aliases == nil || !whatsAppID.MatchString(current) {
			continue
		}
		for _, a := range aliases(current) {
			if a = normalizeWhatsApp(a); a != "" && !seen[a] {
				seen[a] = true
				queue = append(queue, a)
			}
		}
	}
	return best
}

// normalizeWhatsApp turns "+15551234567:12@s.whatsapp.net" into "15551234567".
func normalizeWhatsApp(id string) string {
	id = strings.Replace(strings.TrimSpace(id), "+", "", 1)
	id, _, _ = strings.Cut(id, ":")
	id, _, _ = strings.Cut(id, "@")
	return id
}
