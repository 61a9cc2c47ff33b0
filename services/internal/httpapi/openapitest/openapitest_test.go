package openapitest_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/services/internal/httpapi"
	"github.com/hermes-runtime/hermes/services/internal/httpapi/openapitest"
)

const description = `
openapi: 3.1.0
info: {title: things, version: "1"}
paths:
  /v1/things/{id}:
    post:
      tags: [things]
      parameters:
        - {name: id, in: path, required: true, schema: {type: string}}
      requestBody:
        content:
          application/json:
            schema: {type: object, required: [name], properties: {name: {type: string}}}
      responses:
        "200":
          description: done
          content:
            application/json:
              schema: {type: object, required: [id], properties: {id: {type: string, format: uuid}}}
            text/event-stream:
              schema: {type: string}
        "400": {description: wrong}
  /v1/others:
    get:
      responses:
        "200": {description: done}
components:
  schemas:
    Piece: {type: object, required: [n], properties: {n: {type: integer}}}
`

func load(t *testing.T, text string) (*openapitest.Spec, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "openapi.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return openapitest.Load(path)
}

func TestLoad_RefusesWhatIsNoDescription(t *testing.T) {
	t.Parallel()
	_, err := openapitest.Load(filepath.Join(t.TempDir(), "none.yaml"))
	require.Error(t, err)
	for _, text := range []string{"nothing", "openapi: 3.1.0\npaths: {}\n"} {
		_, err := load(t, text)
		require.Error(t, err, text)
	}
}

func TestRoutes_AreThoseOfATagOrAllOthers(t *testing.T) {
	t.Parallel()
	s, err := load(t, description)
	require.NoError(t, err)
	require.Equal(t, []httpapi.Route{{Method: "POST", Pattern: "/v1/things/{id}"}}, s.Routes("things", false))
	require.Equal(t, []httpapi.Route{{Method: "GET", Pattern: "/v1/others"}}, s.Routes("things", true))
}

func TestCheckSchema_TellsWhatIsNotAsDescribed(t *testing.T) {
	t.Parallel()
	s, err := load(t, description)
	require.NoError(t, err)
	require.NoError(t, s.CheckSchema("Piece", []byte(`{"n":1}`)))
	require.ErrorContains(t, s.CheckSchema("Piece", []byte(`{"n":"1"}`)), "is no Piece")
	require.ErrorContains(t, s.CheckSchema("Piece", []byte(`{}`)), "is no Piece")
	require.ErrorContains(t, s.CheckSchema("Other", []byte(`{}`)), "is not described")
}

func TestCheck_TellsWhatIsNotAsDescribed(t *testing.T) {
	t.Parallel()
	s, err := load(t, description)
	require.NoError(t, err)
	const good = `{"id":"0191f7d0-0000-7000-8000-000000000000"}`
	for name, c := range map[string]struct {
		method, path, body, kind string
		status                   int
		answer                   string
		want                     string
	}{
		"as described":                  {"POST", "/v1/things/a%2Fb", `{"name":"x"}`, "application/json", 200, good, ""},
		"a stream":                      {"POST", "/v1/things/a", `{"name":"x"}`, "text/event-stream", 200, "", ""},
		"a wrong request is refused":    {"POST", "/v1/things/a", `{}`, "application/json", 400, `{}`, ""},
		"an unknown path is refused":    {"POST", "/v1/none", `{}`, "application/json", 404, `{}`, ""},
		"a wrong request is accepted":   {"POST", "/v1/things/a", `{}`, "application/json", 200, good, "was accepted"},
		"an unknown path is served":     {"POST", "/v1/none", `{}`, "application/json", 200, `{}`, "is not described"},
		"an unknown method is served":   {"PUT", "/v1/things/a", `{}`, "application/json", 200, `{}`, "is not described"},
		"an unknown status":             {"POST", "/v1/things/a", `{"name":"x"}`, "application/json", 418, `{}`, "answered 418"},
		"an unknown type":               {"POST", "/v1/things/a", `{"name":"x"}`, "text/html", 200, good, "answered 200"},
		"a member is missing":           {"POST", "/v1/things/a", `{"name":"x"}`, "application/json", 200, `{}`, "answered 200"},
		"a member has the wrong format": {"POST", "/v1/things/a", `{"name":"x"}`, "application/json", 200, `{"id":"x"}`, "answered 200"},
		"a member too many":             {"POST", "/v1/things/a", `{"name":"x"}`, "application/json", 200, good[:len(good)-1] + `,"more":1}`, "more"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://localhost"+c.path, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.kind}}}
		err = s.Check(req, []byte(c.body), resp, []byte(c.answer))
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.want, name)
	}
}
