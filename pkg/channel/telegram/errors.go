package telegram

import (
	"errors"
	"net/http"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/channel"
)

// The Bot API tells most refusals apart by text only.
const (
	textCannotParse  = "can't parse entities"
	textNotModified  = "message is not modified"
	textNoThread     = "message thread not found"
	textTopicDeleted = "topic_deleted"
	textNoDelete     = "message to delete not found"
	textCannotDelete = "message can't be deleted"
)

// lostMessage are the refusals of an edit that a new message answers.
func lostMessage() []string {
	return []string{
		"message to edit not found", "message can't be edited", "there is no text in the message to edit", "message_id_invalid",
		"message identifier is not specified",
	}
}

// noPhoto are the refusals of an image that can still be sent as a file.
func noPhoto() []string {
	return []string{"photo_invalid_dimensions", "image_process_failed", "photo_ext_invalid"}
}

// refused reports whether err is a 400 whose text holds one of texts.
func refused(err error, texts ...string) bool {
	e, ok := errors.AsType[*APIError](err)
	if !ok || e.Code != http.StatusBadRequest {
		return false
	}
	description := strings.ToLower(e.Description)
	for _, t := range texts {
		if strings.Contains(description, t) {
			return true
		}
	}
	return false
}

// classify turns an error of a call into one of the port.
func classify(err error, chat string) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*channel.SendError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*APIError](err); ok {
		return classifyRefusal(e, chat)
	}
	out := &channel.SendError{Class: channel.Unknown, Err: err}
	if e, ok := errors.AsType[*CallError](err); ok && !e.Reached {
		out.Class = channel.NotSent
	}
	return out
}

func classifyRefusal(e *APIError, chat string) *channel.SendError {
	out := &channel.SendError{Class: channel.Permanent, Status: e.Code, Err: e}
	switch {
	case e.MigrateTo != "":
		out.Class, out.MovedTo = channel.Moved, e.MigrateTo
	case refused(e, textNoThread, textTopicDeleted):
		out.Class, out.ThreadGone = channel.NotSent, true
	case e.Code == http.StatusUnauthorized, e.Code == http.StatusNotFound: // a token, or a server, that is not what it was
		out.Class = channel.Credential
	case e.Code == http.StatusTooManyRequests:
		// The answer does not say whether the chat or the bot is meant. If it is the bot, the next chat is told the same.
		out.Class, out.RetryAfter, out.Freezes = channel.NotSent, e.RetryAfter, chatBucket(chat)
	case e.Code == http.StatusRequestTimeout, e.Code == http.StatusTooEarly:
		out.Class, out.RetryAfter = channel.NotSent, e.RetryAfter
	case e.Code == http.StatusBadGateway, e.Code == http.StatusGatewayTimeout:
		out.Class = channel.Unknown
	case e.Code >= http.StatusInternalServerError:
		out.Class, out.RetryAfter = channel.NotSent, e.RetryAfter
	}
	return out
}

func permanent(text string) *channel.SendError {
	return &channel.SendError{Class: channel.Permanent, Err: errors.New(text)}
}
