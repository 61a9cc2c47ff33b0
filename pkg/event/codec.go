package event

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hermes-runtime/hermes/pkg/session"
	eventv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/event/v1"
)

// Encode returns the bus form of a message.
func Encode(m *Message) ([]byte, error) {
	raw, err := proto.Marshal(toProto(m))
	if err != nil {
		return nil, fmt.Errorf("encode message event: %w", err)
	}
	return raw, nil
}

// Decode reads the bus form of a message and validates it.
func Decode(raw []byte) (*Message, error) {
	var p eventv1.MessageEvent
	if err := proto.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("decode message event: %w", err)
	}
	m := fromProto(&p)
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("decode message event: %w", err)
	}
	return m, nil
}

// kinds maps our kinds to the wire and back; both directions read this one list.
//
//nolint:gochecknoglobals // a table that nobody changes
var kinds = []struct {
	kind Kind
	wire eventv1.Kind
}{
	{KindMessage, eventv1.Kind_KIND_MESSAGE},
	{KindEdit, eventv1.Kind_KIND_EDIT},
	{KindAction, eventv1.Kind_KIND_ACTION},
	{KindCommand, eventv1.Kind_KIND_COMMAND},
	{KindReceipt, eventv1.Kind_KIND_RECEIPT},
	{KindTimer, eventv1.Kind_KIND_TIMER},
	{KindSystem, eventv1.Kind_KIND_SYSTEM},
}

func kindToWire(k Kind) eventv1.Kind {
	for _, e := range kinds {
		if e.kind == k {
			return e.wire
		}
	}
	return eventv1.Kind_KIND_UNSPECIFIED
}

func kindFromWire(w eventv1.Kind) Kind {
	for _, e := range kinds {
		if e.wire == w {
			return e.kind
		}
	}
	return ""
}

func toProto(m *Message) *eventv1.MessageEvent {
	p := &eventv1.MessageEvent{
		MsgUid: m.UID, Tenant: m.Tenant, SessionKey: m.SessionKey, Skey: m.SKey,
		Profile: m.Profile, RunClass: m.RunClass, Kind: kindToWire(m.Kind),
		Source: sourceToProto(m.Source), ReplyTo: addressToProto(m.ReplyTo),
		Text: m.Text, PlatformMessageId: m.PlatformMessageID, EditVersion: m.EditVersion,
		Group: m.Group, ItemUids: m.ItemUIDs,
		SentAt: timeToProto(m.SentAt), ReceivedAt: timeToProto(m.ReceivedAt),
		BusyPolicy: string(m.BusyPolicy), Fingerprint: m.Fingerprint, CallId: m.CallID, BlobRef: m.BlobRef,
		Refusal: string(m.Refusal),
	}
	for _, t := range m.History {
		p.History = append(p.History, &eventv1.Turn{Role: t.Role, Text: t.Text})
	}
	for _, a := range m.Attachments {
		p.Attachments = append(p.Attachments, &eventv1.Attachment{
			Kind: a.Kind, Ref: a.Ref, Mime: a.MIME, Size: a.Size, Name: a.Name, Caption: a.Caption, ItemUid: a.ItemUID,
		})
	}
	if q := m.Quote; q != nil {
		p.Quote = &eventv1.Quote{MessageId: q.MessageID, Text: q.Text, AuthorId: q.AuthorID, Own: q.Own}
	}
	if c := m.Command; c != nil {
		p.Command = &eventv1.Command{Name: c.Name, Args: c.Args}
	}
	return p
}

func fromProto(p *eventv1.MessageEvent) *Message {
	m := &Message{
		UID: p.GetMsgUid(), Tenant: p.GetTenant(), SessionKey: p.GetSessionKey(), SKey: p.GetSkey(),
		Profile: p.GetProfile(), RunClass: p.GetRunClass(), Kind: kindFromWire(p.GetKind()),
		Source: sourceFromProto(p.GetSource()), ReplyTo: addressFromProto(p.GetReplyTo()),
		Text: p.GetText(), PlatformMessageID: p.GetPlatformMessageId(), EditVersion: p.GetEditVersion(),
		Group: p.GetGroup(), ItemUIDs: p.GetItemUids(),
		SentAt: timeFromProto(p.GetSentAt()), ReceivedAt: timeFromProto(p.GetReceivedAt()),
		BusyPolicy: Policy(p.GetBusyPolicy()), Fingerprint: p.GetFingerprint(), CallID: p.GetCallId(), BlobRef: p.GetBlobRef(),
		Refusal: Refusal(p.GetRefusal()),
	}
	for _, t := range p.GetHistory() {
		m.History = append(m.History, Turn{Role: t.GetRole(), Text: t.GetText()})
	}
	for _, a := range p.GetAttachments() {
		m.Attachments = append(m.Attachments, Attachment{
			Kind: a.GetKind(), Ref: a.GetRef(), MIME: a.GetMime(), Size: a.GetSize(), Name: a.GetName(),
			Caption: a.GetCaption(), ItemUID: a.GetItemUid(),
		})
	}
	if q := p.GetQuote(); q != nil {
		m.Quote = &Quote{MessageID: q.GetMessageId(), Text: q.GetText(), AuthorID: q.GetAuthorId(), Own: q.GetOwn()}
	}
	if c := p.GetCommand(); c != nil {
		m.Command = &Command{Name: c.GetName(), Args: c.GetArgs()}
	}
	return m
}

func sourceToProto(s session.Source) *eventv1.Source {
	return &eventv1.Source{
		Platform: s.Platform, Account: s.Account, ChatId: s.ChatID, ChatType: s.ChatType,
		UserId: s.UserID, UserIdAlt: s.UserIDAlt, ThreadId: s.ThreadID, ProspectiveThreadId: s.ProspectiveThread,
		ScopeId: s.ScopeID, GuildId: s.GuildID, UserName: s.UserName, ChatName: s.ChatName, IsBot: s.Bot,
	}
}

func sourceFromProto(p *eventv1.Source) session.Source {
	s := session.Source{
		Platform: p.GetPlatform(), Account: p.GetAccount(), ChatID: p.GetChatId(), ChatType: p.GetChatType(),
		UserID: p.GetUserId(), UserIDAlt: p.GetUserIdAlt(), ThreadID: p.GetThreadId(), ProspectiveThread: p.GetProspectiveThreadId(),
		UserName: p.GetUserName(), ChatName: p.GetChatName(), Bot: p.GetIsBot(),
	}
	if p != nil {
		s.ScopeID, s.GuildID = p.ScopeId, p.GuildId
	}
	return s
}

func addressToProto(a Address) *eventv1.Address {
	return &eventv1.Address{
		Platform: a.Platform, Account: a.Account, ChatId: a.ChatID, ThreadId: a.ThreadID,
		ReplyToMessageId: a.MessageID, Extra: a.Extra,
	}
}

func addressFromProto(p *eventv1.Address) Address {
	return Address{
		Platform: p.GetPlatform(), Account: p.GetAccount(), ChatID: p.GetChatId(), ThreadID: p.GetThreadId(),
		MessageID: p.GetReplyToMessageId(), Extra: p.GetExtra(),
	}
}

// EncodeLifecycle returns the bus form of a lifecycle event.
func EncodeLifecycle(e *Lifecycle) ([]byte, error) {
	raw, err := proto.Marshal(&eventv1.LifecycleEvent{
		Type: string(e.Type), Tenant: e.Tenant, Skey: e.SKey, MsgUid: e.MsgUID, RunId: e.RunID,
		Gen: e.Gen, N: e.N, OutSeq: e.OutSeq, At: timeToProto(e.At), Outcome: e.Outcome,
		Platform: e.Address.Platform, Account: e.Address.Account, ChatId: e.Address.ChatID, ThreadId: e.Address.ThreadID,
		Profile: e.Profile, Name: e.Name, CallId: e.CallID, DurationUs: e.Duration.Microseconds(), Size: e.Size,
		InputTokens: e.InputTokens, OutputTokens: e.OutputTokens, Content: e.Content,
	})
	if err != nil {
		return nil, fmt.Errorf("encode lifecycle event %s: %w", e.Type, err)
	}
	return raw, nil
}

// DecodeLifecycle reads the bus form of a lifecycle event.
func DecodeLifecycle(raw []byte) (*Lifecycle, error) {
	var p eventv1.LifecycleEvent
	if err := proto.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("decode lifecycle event: %w", err)
	}
	return &Lifecycle{
		Type: Type(p.GetType()), Tenant: p.GetTenant(), SKey: p.GetSkey(), MsgUID: p.GetMsgUid(), RunID: p.GetRunId(),
		Gen: p.GetGen(), N: p.GetN(), OutSeq: p.GetOutSeq(), At: timeFromProto(p.GetAt()), Outcome: p.GetOutcome(),
		Address: Address{Platform: p.GetPlatform(), Account: p.GetAccount(), ChatID: p.GetChatId(), ThreadID: p.GetThreadId()},
		Profile: p.GetProfile(), Name: p.GetName(), CallID: p.GetCallId(),
		Duration: time.Duration(p.GetDurationUs()) * time.Microsecond, Size: p.GetSize(),
		InputTokens: p.GetInputTokens(), OutputTokens: p.GetOutputTokens(), Content: p.GetContent(),
	}, nil
}

func timeToProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func timeFromProto(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
