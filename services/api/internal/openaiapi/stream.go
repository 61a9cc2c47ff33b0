package openaiapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/hermes-runtime/hermes/services/api/internal/runapi"
	"github.com/hermes-runtime/hermes/services/api/internal/sse"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// chunk is one piece of a streamed answer.
type chunk struct {
	ID      string    `json:"id"`
	Object  string    `json:"object"`
	Created int64     `json:"created"`
	Model   string    `json:"model"`
	Choices []deltaOf `json:"choices"`
	Usage   *usage    `json:"usage,omitempty"`
}

type deltaOf struct {
	Index        int       `json:"index"`
	Delta        delta     `json:"delta"`
	LogProbs     *struct{} `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
}

type delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// streaming is a streamed answer on its way. The response begins with the first event, or with the first ping: what is
// refused at once gets its status.
type streaming struct {
	*call
	header http.Header
	out    *sse.Writer
	prose  prose
	runID  string
}

// errEnded: the client has been told that there is no more, although the run goes on.
var errEnded = errors.New("stream ended")

func (h *Handler) stream(ctx context.Context, w http.ResponseWriter, out *sse.Writer, c *call, feed *runapi.Feed) error {
	s := &streaming{call: c, header: w.Header(), out: out}
	err := h.runs.Pump(ctx, feed, s.ping, s.event)
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

func (s *streaming) event(e runapi.Event) error {
	if e.RunID != "" {
		s.runID = e.RunID
		s.header.Set(runHeader, e.RunID) // in time if the response has not begun
	}
	switch {
	case e.Kind.Final():
		return s.end(e)
	case e.Kind == runapi.Text:
		return s.text(s.prose.text(e.Text))
	case e.Kind == runapi.Step:
		s.prose.step()
	case e.Kind == runapi.Reset:
		s.prose.reset()
	}
	return s.begin()
}

// begin sends the role, once.
func (s *streaming) begin() error {
	if s.out.Opened() {
		return nil
	}
	return s.send(delta{Role: roleAssistant, Content: new(string)}, nil)
}

func (s *streaming) ping() error {
	if err := s.begin(); err != nil {
		return err
	}
	return s.out.Ping()
}

func (s *streaming) text(text string, err error) error {
	if errors.Is(err, errDiverged) {
		return s.fail(&httpapi.Error{
			Type: httpapi.TypeConflict, Code: "answer_restarted",
			Message: "the answer begins anew with another text; the whole answer is at /v1/runs/" + s.runID + " once the run has ended",
		})
	}
	if err := s.begin(); err != nil {
		return err
	}
	if text == "" {
		return nil
	}
	return s.send(delta{Content: &text}, nil)
}

// end sends what is missing of the committed text and how the answer ended.
func (s *streaming) end(final runapi.Event) error {
	if err := unanswered(final); err != nil {
		return s.fail(err)
	}
	if err := s.text(s.prose.finish(final.Text)); err != nil {
		return err
	}
	reason := finishStop
	if err := s.send(delta{}, &reason); err != nil {
		return err
	}
	if s.includeUsage {
		total := usageOf(final.Usage)
		if err := s.write(s.chunk([]deltaOf{}, &total)); err != nil {
			return err
		}
	}
	return s.out.Write([]byte("data: [DONE]\n\n"))
}

// fail ends the stream with an error; before its beginning the error is the whole answer.
func (s *streaming) fail(err error) error {
	if !s.out.Opened() {
		return err
	}
	if err := s.write(map[string]error{"error": err}); err != nil {
		return err
	}
	return errEnded
}

func (s *streaming) send(d delta, reason *string) error {
	return s.write(s.chunk([]deltaOf{{Delta: d, FinishReason: reason}}, nil))
}

func (s *streaming) chunk(choices []deltaOf, total *usage) chunk {
	return chunk{
		ID: s.id(), Object: "chat.completion.chunk", Created: s.ReceivedAt.Unix(), Model: s.profile.Name, Choices: choices, Usage: total,
	}
}

func (s *streaming) write(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode chunk: %w", err)
	}
	return s.out.Write(fmt.Appendf(nil, "data: %s\n\n", raw))
}
