package toolserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	toolv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/tool/v1"
	"github.com/hermes-runtime/hermes/services/toolexec/internal/workspace"
)

const (
	maxArgumentsBytes = 256 << 10
	maxIDBytes        = 256
)

// check refuses a malformed request with InvalidArgument. Every wrong field is in the BadRequest detail.
func (s *Server) check(r *toolv1.ToolRequest) error {
	if r == nil {
		return invalid([]violation{{"request", errors.New("is missing")}})
	}
	var wrong []violation
	for _, v := range []violation{
		{"run_id", checkID(r.GetRunId())},
		{"call_id", checkID(r.GetCallId())},
		{"idem_key", checkID(r.GetIdemKey())},
		{"session", workspace.CheckSession(r.GetSession())},
		{"tenant", workspace.CheckTenant(workspace.TenantOrDefault(r.GetTenant()))},
		{"user", checkID(r.GetUser())},
		{"name", s.checkName(r.GetName())},
		{"arguments", checkArguments(r.GetArguments())},
		{"deadline", checkDeadline(r)},
	} {
		if v.err != nil {
			wrong = append(wrong, v)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return invalid(wrong)
}

type violation struct {
	field string
	err   error
}

func invalid(wrong []violation) error {
	details := &errdetails.BadRequest{}
	for _, v := range wrong {
		details.FieldViolations = append(details.FieldViolations,
			&errdetails.BadRequest_FieldViolation{Field: v.field, Description: v.err.Error()})
	}
	first := wrong[0]
	st := status.Newf(codes.InvalidArgument, "field %s: %v", first.field, first.err)
	if detailed, err := st.WithDetails(details); err == nil {
		st = detailed
	}
	return st.Err()
}

func checkID(id string) error {
	if len(id) > maxIDBytes {
		return fmt.Errorf("%d bytes, at most %d are allowed", len(id), maxIDBytes)
	}
	return nil
}

func (s *Server) checkName(name string) error {
	if s.tools[name] == nil {
		return fmt.Errorf("no tool %.64q", name)
	}
	return nil
}

func checkArguments(raw []byte) error {
	if len(raw) > maxArgumentsBytes {
		return fmt.Errorf("%d bytes, at most %d are allowed", len(raw), maxArgumentsBytes)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) || !json.Valid(raw) {
		return errors.New("not a JSON object")
	}
	return nil
}

func checkDeadline(r *toolv1.ToolRequest) error {
	if r.GetDeadline() == nil {
		return errors.New("is missing")
	}
	return r.GetDeadline().CheckValid()
}
