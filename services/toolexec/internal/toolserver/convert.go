package toolserver

import (
	"github.com/hermes-runtime/hermes/pkg/tool"
	toolv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/tool/v1"
	"github.com/hermes-runtime/hermes/services/toolexec/internal/builtin"
)

func specToProto(s tool.Spec) *toolv1.ToolSpec {
	return &toolv1.ToolSpec{
		Name:          s.Name,
		Description:   s.Description,
		Parameters:    s.Parameters,
		Effect:        effectToProto(s.Effect),
		PathArguments: s.PathArguments,
	}
}

// effectToProto takes what it does not know for the most dangerous.
func effectToProto(e tool.Effect) toolv1.Effect {
	switch e {
	case tool.Read:
		return toolv1.Effect_EFFECT_READ
	case tool.Idempotent:
		return toolv1.Effect_EFFECT_IDEMPOTENT
	default:
		return toolv1.Effect_EFFECT_UNSAFE
	}
}

func resultToProto(r builtin.Result) *toolv1.ToolResponse {
	return &toolv1.ToolResponse{
		Outcome:      outcomeToProto(r.Outcome),
		Content:      r.Content,
		FullSize:     r.FullSize,
		Truncated:    r.Truncated,
		ChangedFiles: r.Changed,
	}
}

func outcomeToProto(o tool.Outcome) toolv1.Outcome {
	switch o {
	case tool.OK:
		return toolv1.Outcome_OUTCOME_OK
	case tool.Timeout:
		return toolv1.Outcome_OUTCOME_TIMEOUT
	case tool.Denied:
		return toolv1.Outcome_OUTCOME_DENIED
	default:
		return toolv1.Outcome_OUTCOME_ERROR
	}
}
