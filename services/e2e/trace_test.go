package e2e

import (
	"context"
	"encoding/hex"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/hermes-runtime/hermes/pkg/testkit/await"
)

// collector is the receiving end of OTLP: the wire that a real collector speaks.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans []span
}

// span is what the test looks at.
type span struct{ service, name, id, parent, trace string }

func (c *collector) Export(_ context.Context, req *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range req.GetResourceSpans() {
		service := ""
		for _, a := range rs.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				c.spans = append(c.spans, span{
					service: service, name: s.GetName(), id: hex.EncodeToString(s.GetSpanId()),
					parent: hex.EncodeToString(s.GetParentSpanId()), trace: hex.EncodeToString(s.GetTraceId()),
				})
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func (c *collector) all() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

func startCollector(t *testing.T) (c *collector, addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c = &collector{}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(l) }() // ends with Stop
	t.Cleanup(server.Stop)
	return c, l.Addr().String()
}

// hop is a span and the span that has to be its parent.
type hop struct{ service, name, parent string }

func TestTrace_OneMessageThroughFiveServices(t *testing.T) {
	t.Parallel()
	c, addr := startCollector(t)
	s := start(t, options{otlp: addr}) // the demo model really calls the tool
	code, body := s.hook("id-1", "c", "what files are in the workspace?")
	require.Equal(t, http.StatusAccepted, code, body)
	s.awaitReplies(1, 30*time.Second)

	hops := []hop{
		{"hermes-ingress", "publish ing.{pp}.{tenant}.{skey}", "POST /v1/hooks/{channel}"},
		{"hermes-router", "process ing.{pp}.{tenant}.{skey}", "publish ing.{pp}.{tenant}.{skey}"},
		{"hermes-worker", "invoke_agent default", "process ing.{pp}.{tenant}.{skey}"},
		{"hermes-worker", "chat demo", ""},
		{"hermes-worker", "execute_tool list_files", ""},
		{"hermes-toolexec", "hermes.tool.v1.ToolService/Execute", "hermes.tool.v1.ToolService/Execute"},
		{"hermes-egress", "send webhook", ""},
	}
	await.True(t, 30*time.Second, func() bool { // exporters send in batches, every 5 s
		return len(missing(c.all(), hops)) == 0
	}, "hops: %v", hops)

	spans := c.all()
	byID := map[string]span{}
	for _, sp := range spans {
		byID[sp.id] = sp
	}
	root, ok := find(spans, "hermes-ingress", "POST /v1/hooks/{channel}")
	require.True(t, ok)
	for _, h := range hops {
		sp, ok := find(spans, h.service, h.name)
		require.True(t, ok, h)
		require.Equal(t, root.trace, sp.trace, "%s of %s is in the same trace", sp.name, sp.service)
		require.Contains(t, byID, sp.parent, "%s of %s has a parent that was exported", sp.name, sp.service)
		if h.parent != "" {
			require.Equal(t, h.parent, byID[sp.parent].name)
		}
		require.Contains(t, ancestors(byID, sp), root.id, "%s of %s descends from the request", sp.name, sp.service)
	}
}

func find(spans []span, service, name string) (span, bool) {
	i := slices.IndexFunc(spans, func(s span) bool { return s.service == service && s.name == name })
	if i < 0 {
		return span{}, false
	}
	return spans[i], true
}

func missing(spans []span, hops []hop) []hop {
	return slices.DeleteFunc(slices.Clone(hops), func(h hop) bool {
		_, ok := find(spans, h.service, h.name)
		return ok
	})
}

func ancestors(byID map[string]span, s span) []string {
	var ids []string
	for {
		parent, ok := byID[s.parent]
		if !ok || slices.Contains(ids, parent.id) {
			return ids
		}
		ids = append(ids, parent.id)
		s = parent
	}
}
