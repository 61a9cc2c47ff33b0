package devserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/services/hermes/internal/chat"
	"github.com/hermes-runtime/hermes/services/hermes/internal/client"
)

const (
	demoQuestion = "what files are in the workspace?"
	demoTimeout  = 30 * time.Second
	demoBuffer   = 256
)

// errDemo says that the demo did not show what it promises.
var errDemo = errors.New("the demo failed")

// Demo asks one question that needs a tool, prints the path of the message and the answer, and fails unless the tool was
// called and the answer arrived.
func Demo(ctx context.Context, s *Server, banner Banner, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	rest := residentMiB()
	path := make(chan bus.Msg, demoBuffer)
	sub, err := s.Bus.Listen("evt.>", path)
	if err != nil {
		return err
	}
	defer sub.Close() //nolint:errcheck // the process ends
	d := demo{begin: time.Now()}
	talk := chat.Conversation{Client: client.New(banner.API, ""), Session: "demo"}
	last, err := talk.Ask(ctx, demoQuestion, d.event)
	if err != nil {
		return err
	}
	d.total = time.Since(d.begin)
	if _, err := fmt.Fprintf(out, "%s\n› %s\n\n%s\n%s\n\n"+
		"first token %.1f ms · answer %.1f ms · ready in %d ms · %s MiB at rest\n",
		banner, demoQuestion, d.path(ctx, path), last.Text, ms(d.first), ms(d.total), banner.StartMS, rest); err != nil {
		return err
	}
	if last.Kind != client.Done || d.tools == 0 {
		return fmt.Errorf("%w: state %s, %d tool calls", errDemo, last.Kind, d.tools)
	}
	return nil
}

// demo measures one question.
type demo struct {
	begin        time.Time
	first, total time.Duration
	tools        int
}

func (d *demo) event(e client.Event) {
	switch e.Kind {
	case client.Text:
		if d.first == 0 {
			d.first = time.Since(d.begin)
		}
	case client.ToolFinished:
		d.tools++
	default:
	}
}

// path lists the lifecycle events of the message, until its processing is completed.
func (d *demo) path(ctx context.Context, events <-chan bus.Msg) string {
	var b strings.Builder
	for {
		select {
		case <-ctx.Done():
			return b.String()
		case m := <-events:
			e, err := event.DecodeLifecycle(m.Data)
			if err != nil {
				continue // an event of another version: the demo only shows what it knows
			}
			fmt.Fprintf(&b, "  %7.1f ms  %-22s %s\n", ms(e.At.Sub(d.begin)), e.Type, e.Name)
			if e.Type == event.ProcessingCompleted {
				return b.String()
			}
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// residentMiB is this process's resident memory, "?" where the system does not tell.
func residentMiB() string {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return "?"
	}
	fields := strings.Fields(string(raw))
	if len(fields) < 2 {
		return "?"
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return "?"
	}
	return strconv.FormatInt(pages*int64(os.Getpagesize())>>20, 10)
}
