package inbox

import (
	"encoding/json"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// rowManner is how a row wants to be taken: its policy, and whose it is.
type rowManner struct {
	policy event.Policy
	sender string
}

// manner reads it from the body, where admission has put the policy that counts. A row that cannot be read, or says
// nothing, is a turn of its own.
func manner(row store.InboxRow) rowManner {
	var body struct {
		Policy event.Policy `json:"busy_policy"`
		Source struct {
			UserID string `json:"user_id"`
		} `json:"source"`
	}
	if err := json.Unmarshal(row.Body, &body); err != nil {
		return rowManner{policy: event.PolicyQueue}
	}
	return rowManner{policy: body.Policy, sender: body.Source.UserID}
}

// Sender is who wrote a row, "" if it does not say.
func Sender(row store.InboxRow) string { return manner(row).sender }

// PolicyOf is the policy of a row as admission has stored it.
func PolicyOf(row store.InboxRow) event.Policy { return manner(row).policy }
