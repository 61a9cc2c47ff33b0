package turn

import "context"

// Chat is the label of a turn that no skill claims.
const Chat = "chat"

// chat recognises every turn as chat.
type chat struct{}

func (chat) Recognise(_ context.Context, t *Turn) (Intent, error) { return chatIntent(t), nil }

func chatIntent(t *Turn) Intent {
	return Intent{Label: Chat, Confidence: 1, Span: Span{End: len(t.Text)}}
}

// react sends every turn to the ReAct loop.
type react struct{}

func (react) Route(context.Context, *Turn) (Decision, error) {
	return Decision{Executor: React, Reason: "default"}, nil
}
