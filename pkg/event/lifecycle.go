package event

import "time"

// Type names a step in the life of a message, a run or a delivery: the last token of the EVT subject.
type Type string

// The types in the order of one message, then those that stand beside it.
const (
	MessageReceived     Type = "message_received"
	MessagePending      Type = "message_pending"
	MessageMerged       Type = "message_merged"
	MessageIgnored      Type = "message_ignored"
	ProcessingStarted   Type = "processing_started"
	RunStarted          Type = "run_started"
	StateChanged        Type = "state_changed"
	LLMStarted          Type = "llm_started"
	LLMFinished         Type = "llm_finished"
	ToolStarted         Type = "tool_started"
	ToolProgress        Type = "tool_progress"
	ToolFinished        Type = "tool_finished"
	ApprovalRequested   Type = "approval_requested"
	ApprovalResolved    Type = "approval_resolved"
	RunFinished         Type = "run_finished"
	ResponseSent        Type = "response_sent"
	ProcessingCompleted Type = "processing_completed"

	RunInterrupted Type = "run_interrupted"
	RunTakenOver   Type = "run_taken_over"
	RunHandedOver  Type = "run_handed_over"
	RunDead        Type = "run_dead"
	DeliveryFailed Type = "delivery_failed"
	SessionReset   Type = "session_reset"
)

// Types returns all of them, in that order.
func Types() []Type {
	return []Type{
		MessageReceived, MessagePending, MessageMerged, MessageIgnored, ProcessingStarted, RunStarted, StateChanged, LLMStarted,
		LLMFinished, ToolStarted, ToolProgress, ToolFinished, ApprovalRequested, ApprovalResolved, RunFinished, ResponseSent,
		ProcessingCompleted, RunInterrupted, RunTakenOver, RunHandedOver, RunDead, DeliveryFailed, SessionReset,
	}
}

// Lifecycle is one observable step. It carries ids, times, sizes and outcomes, never message text.
type Lifecycle struct {
	Type   Type
	Tenant string
	SKey   string
	MsgUID string
	RunID  string
	// (Gen, N) orders the events of a run; OutSeq those of a delivery.
	Gen    int64
	N      int64
	OutSeq int64
	At     time.Time
	// Outcome is ok, error, done, failed, cancelled, sent, dead, …: see the type.
	Outcome string
	// Where the event happened, for subscribers such as typing indicators.
	Address Address
	Profile string
	// Name is the turn state, the model or the tool.
	Name     string
	CallID   string
	Duration time.Duration
	Size     int64
	// Token counts of an LLM call.
	InputTokens, OutputTokens int64
	// Content is set only with telemetry.content.
	Content string
}
