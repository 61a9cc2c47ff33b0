package openaiapi

import (
	"fmt"
	"net/http"

	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// model is a profile as clients of OpenAI see it.
type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func (h *Handler) model(name string) model {
	return model{ID: name, Object: "model", Created: h.created, OwnedBy: "hermes"}
}

// Models lists the models.
func (h *Handler) Models(w http.ResponseWriter, _ *http.Request) error {
	data := make([]model, len(h.names))
	for i, name := range h.names {
		data[i] = h.model(name)
	}
	httpapi.WriteJSON(w, http.StatusOK, struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", data})
	return nil
}

// Model shows one model.
func (h *Handler) Model(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("id")
	if _, ok := h.profiles[name]; !ok {
		return unknownModel(name)
	}
	httpapi.WriteJSON(w, http.StatusOK, h.model(name))
	return nil
}

// maxShownRunes bounds how much of an unknown name is repeated.
const maxShownRunes = 64

func unknownModel(name string) error {
	if runes := []rune(name); len(runes) > maxShownRunes {
		name = string(runes[:maxShownRunes]) + "…"
	}
	return &httpapi.Error{
		Status: http.StatusNotFound, Type: httpapi.TypeInvalid, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf("model: %q does not exist, GET /v1/models lists those that do", name),
	}
}
