package llm

import "slices"

// Join returns the messages with neighbours of one role joined in order, as providers demand that alternate roles, and
// with the speaker before each text that has one ("[Anna]: hi"). Tool messages stay apart, since each answers one call. The
// input is not changed: history keeps the separate messages.
func Join(messages []Message) []Message {
	joined := make([]Message, 0, len(messages))
	for _, m := range messages {
		m = attributed(m)
		last := len(joined) - 1
		if last >= 0 && joinable(joined[last], m) {
			joined[last] = join(joined[last], m)
			continue
		}
		joined = append(joined, m)
	}
	return joined
}

func attributed(m Message) Message {
	if m.Role == User && m.Name != "" {
		m.Text = "[" + m.Name + "]: " + m.Text
	}
	m.Name = ""
	return m
}

// joinable: nothing may come between tool calls and their results.
func joinable(a, b Message) bool {
	return a.Role == b.Role && a.Role != Tool && len(a.ToolCalls) == 0
}

func join(a, b Message) Message {
	if a.Text != "" && b.Text != "" {
		a.Text += "\n"
	}
	a.Text += b.Text
	a.ToolCalls = slices.Clone(b.ToolCalls)
	return a
}
