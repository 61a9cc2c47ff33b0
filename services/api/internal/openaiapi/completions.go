package openaiapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/services/api/internal/drain"
	"github.com/hermes-runtime/hermes/services/api/internal/profile"
	"github.com/hermes-runtime/hermes/services/api/internal/runapi"
	"github.com/hermes-runtime/hermes/services/api/internal/sse"
	"github.com/hermes-runtime/hermes/services/api/internal/submit"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// Deps are what the handler works with.
type Deps struct {
	Submit submit.Submitter
	Gate   *drain.Gate
	Logger *slog.Logger
}

// Handler serves models and completions.
type Handler struct {
	Deps
	runs runapi.Deps
	// names are those of the profiles, in order.
	names    []string
	profiles map[string]profile.Profile
	created  int64
	maxBody  int64
}

// New returns a handler of the models that cfg names.
func New(cfg config.Config, d Deps) (*Handler, error) {
	h := &Handler{
		Deps: d, runs: d.Submit.Runs, profiles: map[string]profile.Profile{}, created: time.Now().Unix(), maxBody: cfg.Engine.MaxBodyBytes,
	}
	h.names = slices.Clone(cfg.API.Models)
	if len(h.names) == 0 {
		h.names = slices.Collect(maps.Keys(cfg.Profiles))
	}
	slices.Sort(h.names)
	h.names = slices.Compact(h.names)
	for _, name := range h.names {
		p, err := profile.New(cfg, name)
		if err != nil {
			return nil, fmt.Errorf("api.models: %w", err)
		}
		h.profiles[name] = p
	}
	return h, nil
}

// Headers that tell a client where it stands.
const (
	// requestHeader is what clients of OpenAI show with an error; here it names the message, as in /v1/runs/{id}.
	requestHeader = "X-Request-Id"
	runHeader     = "X-Run-Id"
	// retryHeader tells the official clients whether to repeat a request by themselves.
	retryHeader = "X-Should-Retry"
)

// Complete answers a conversation, whole or as a stream.
func (h *Handler) Complete(w http.ResponseWriter, r *http.Request) error {
	c, err := h.read(w, r)
	if err != nil {
		return err
	}
	ctx, cancel := h.Gate.Context(r.Context())
	defer cancel()
	feed := h.runs.Open(ctx, c.Target(), nil) // before the message is published, so that nothing of its run is missed
	defer feed.Close()
	// A client that goes away now leaves a message behind: it is known, and so is its run.
	a, err := h.Submit.Accept(context.WithoutCancel(ctx), c.Submission, fields())
	if err != nil {
		return err
	}
	w.Header().Set(requestHeader, a.ID)
	feed.FromStart = c.stream && !a.Duplicate
	out := sse.New(w, h.runs.Timing.Write)
	if err = h.Submit.Check(ctx, c.Submission); err == nil {
		if c.stream {
			err = h.stream(ctx, w, out, c, feed)
		} else {
			err = h.answer(ctx, w, c, feed)
		}
	}
	if err == nil {
		return nil
	}
	if c.abandoned(err) {
		h.stop(ctx, c)
	}
	if out.Opened() {
		h.Logger.DebugContext(ctx, "stream cut", "skey", c.SKey, "err", err)
		return nil
	}
	return c.problem(w.Header(), err)
}

// fields are the names under which clients know the fields of a message.
func fields() map[string]string {
	return map[string]string{
		"platform_message_id": submit.KeyHeader, "message": "messages", "text": "messages", "attachments": "messages",
	}
}

var errWaited = errors.New("the time to wait is over")

// answer waits for the end of the run and answers with all of it.
func (h *Handler) answer(ctx context.Context, w http.ResponseWriter, c *call, feed *runapi.Feed) error {
	ctx, cancel := context.WithTimeoutCause(ctx, h.runs.Timing.Answer, errWaited)
	defer cancel()
	var final runapi.Event
	err := feed.Run(ctx, func(e runapi.Event) error {
		if e.RunID != "" {
			w.Header().Set(runHeader, e.RunID)
		}
		final = e
		return nil
	})
	if err != nil {
		return err
	}
	if problem := unanswered(final); problem != nil {
		return problem
	}
	httpapi.WriteJSON(w, http.StatusOK, c.completion(final))
	return nil
}

// abandoned reports whether the run is of no use to anybody: its client is gone and cannot ask for it again.
func (c *call) abandoned(err error) bool {
	_, answered := errors.AsType[*httpapi.Error](err)
	return c.stateless && !c.Keyed && !answered && !errors.Is(err, errWaited)
}

// stopTimeout bounds the stop of an abandoned run.
const stopTimeout = 5 * time.Second

// stop ends the run of a client that went away.
func (h *Handler) stop(ctx context.Context, c *call) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout) // the request has ended
	defer cancel()
	m := c.profile.Message(c.who, c.ReplyTo.ChatID, c.PlatformMessageID+":stop")
	m.Text = runapi.StopText
	if _, err := h.Submit.Acceptor.Accept(ctx, m); err != nil {
		h.Logger.WarnContext(ctx, "abandoned run not stopped", "skey", c.SKey, "err", err)
	}
}
