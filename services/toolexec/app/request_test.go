package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	toolv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/tool/v1"
)

// wrongFields returns the fields that the server named in its refusal.
func wrongFields(t *testing.T, err error) []string {
	t.Helper()
	require.Equal(t, codes.InvalidArgument, status.Code(err), err)
	var fields []string
	for _, d := range status.Convert(err).Details() {
		bad, ok := d.(*errdetails.BadRequest)
		require.True(t, ok)
		for _, v := range bad.GetFieldViolations() {
			fields = append(fields, v.GetField())
		}
	}
	return fields
}

func TestExecute_RefusesBadRequestsAndNamesTheField(t *testing.T) {
	t.Parallel()
	b := start(t)
	for _, tc := range []struct {
		name   string
		change func(*toolv1.ToolRequest)
		field  string
	}{
		{"no session", func(r *toolv1.ToolRequest) { r.Session = "" }, "session"},
		{"short session", func(r *toolv1.ToolRequest) { r.Session = alice[1:] }, "session"},
		{"session is a path", func(r *toolv1.ToolRequest) { r.Session = "../aaaaaaaaaaaaaaaaaaaaaaa" }, "session"},
		{"tenant is a path", func(r *toolv1.ToolRequest) { r.Tenant = ".." }, "tenant"},
		{"unknown tool", func(r *toolv1.ToolRequest) { r.Name = "rm" }, "name"},
		{"no arguments", func(r *toolv1.ToolRequest) { r.Arguments = nil }, "arguments"},
		{"arguments are no object", func(r *toolv1.ToolRequest) { r.Arguments = []byte(`[1]`) }, "arguments"},
		{"arguments are broken", func(r *toolv1.ToolRequest) { r.Arguments = []byte(`{"a":`) }, "arguments"},
		{"arguments are too long", func(r *toolv1.ToolRequest) {
			r.Arguments = []byte(`{"a":"` + strings.Repeat("x", 256<<10) + `"}`)
		}, "arguments"},
		{"no deadline", func(r *toolv1.ToolRequest) { r.Deadline = nil }, "deadline"},
		{"invalid deadline", func(r *toolv1.ToolRequest) { r.Deadline = &timestamppb.Timestamp{Nanos: -1} }, "deadline"},
		{"long run id", func(r *toolv1.ToolRequest) { r.RunId = strings.Repeat("x", 257) }, "run_id"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRequest(t, alice, "current_time", args{})
			tc.change(r)
			_, _, err := b.execute(t.Context(), r)
			require.Equal(t, []string{tc.field}, wrongFields(t, err))
			require.Contains(t, status.Convert(err).Message(), "field "+tc.field+": ")
		})
	}
}

func TestExecute_NamesEveryWrongField(t *testing.T) {
	t.Parallel()
	b := start(t)
	_, _, err := b.execute(t.Context(), &toolv1.ToolRequest{})
	require.Equal(t, []string{"session", "name", "arguments", "deadline"}, wrongFields(t, err))
	_, _, err = b.execute(t.Context(), nil)
	require.Equal(t, []string{"request"}, wrongFields(t, err))
}

func TestExecute_PassedDeadlineIsATimeoutAndNothingRuns(t *testing.T) {
	t.Parallel()
	b := start(t)
	r := newRequest(t, alice, "write_file", args{"path": "f", "content": "x"})
	r.Deadline = timestamppb.New(time.Now().Add(-time.Second))
	_, res, err := b.execute(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, toolv1.Outcome_OUTCOME_TIMEOUT, res.GetOutcome())
	require.Contains(t, res.GetContent(), "the deadline passed before a call could start")
	require.NoDirExists(t, b.workspace(alice))
}

func TestListTools_DescribesEveryTool(t *testing.T) {
	t.Parallel()
	list, err := start(t).client.ListTools(t.Context(), &toolv1.ListToolsRequest{})
	require.NoError(t, err)
	effects := map[string]toolv1.Effect{}
	for _, s := range list.GetTools() {
		effects[s.GetName()] = s.GetEffect()
		require.Contains(t, string(s.GetParameters()), `"additionalProperties": false`)
		require.Greater(t, len(s.GetDescription()), 40)
	}
	require.Equal(t, map[string]toolv1.Effect{
		"current_time": toolv1.Effect_EFFECT_READ, "http_request": toolv1.Effect_EFFECT_UNSAFE,
		"list_files": toolv1.Effect_EFFECT_READ, "read_file": toolv1.Effect_EFFECT_READ,
		"search_files": toolv1.Effect_EFFECT_READ, "terminal": toolv1.Effect_EFFECT_UNSAFE,
		"write_file": toolv1.Effect_EFFECT_IDEMPOTENT,
	}, effects)
}
