// Package openapitest holds handlers to what docs/openapi.yaml says about them.
package openapitest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	validatorerrors "github.com/pb33f/libopenapi-validator/errors"
	"github.com/pb33f/libopenapi-validator/schema_validation"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"

	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// Spec is a description of an API. It is safe for concurrent use.
type Spec struct {
	model *v3.Document
	// requests may say more than is described, responses may not.
	requests, responses validator.Validator
	// mux finds the path of a request as the handlers do.
	mux *http.ServeMux
	// The validator fills its caches as it goes.
	mu sync.Mutex
}

// freeForm is what the description leaves open: whatever a dead letter holds.
const freeForm = "$.body.payload.**"

// Load reads a description and checks that it is a valid one.
func Load(path string) (*Spec, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read description: %w", err)
	}
	doc, err := libopenapi.NewDocument(raw)
	if err != nil {
		return nil, fmt.Errorf("parse description: %w", err)
	}
	model, err := doc.BuildV3Model()
	if err != nil {
		return nil, fmt.Errorf("parse description: %w", err)
	}
	requests, errs := validator.NewValidator(doc, config.WithFormatAssertions(), config.WithoutSecurityValidation())
	responses, more := validator.NewValidator(doc, config.WithFormatAssertions(), config.WithStrictMode(), config.WithStrictIgnorePaths("$.headers.*", freeForm))
	if err := errors.Join(append(errs, more...)...); err != nil {
		return nil, fmt.Errorf("compile description: %w", err)
	}
	if ok, problems := requests.ValidateDocument(); !ok {
		return nil, fmt.Errorf("description: %w", join(problems))
	}
	s := &Spec{model: &model.Model, requests: requests, responses: responses, mux: http.NewServeMux()}
	for path := range s.model.Paths.PathItems.KeysFromOldest() {
		s.mux.Handle(path, http.NotFoundHandler())
	}
	return s, nil
}

// Routes are the operations that have the tag, or all others where without is true, sorted.
func (s *Spec) Routes(tag string, without bool) []httpapi.Route {
	var routes []httpapi.Route
	for path, item := range s.model.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			if slices.Contains(op.Tags, tag) != without {
				routes = append(routes, httpapi.Route{Method: strings.ToUpper(method), Pattern: path})
			}
		}
	}
	slices.SortFunc(routes, CompareRoutes)
	return routes
}

// CompareRoutes orders routes.
func CompareRoutes(a, b httpapi.Route) int {
	return strings.Compare(a.Pattern+" "+a.Method, b.Pattern+" "+b.Method)
}

// Check reports what of an exchange is not as described: the response always, with members that are not described too,
// and the request if it was accepted. What is not described must be refused. A stream is not read.
func (s *Spec) Check(req *http.Request, body []byte, resp *http.Response, answer []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, pattern := s.mux.Handler(req)
	described := s.describes(req.Method, pattern)
	if !described {
		if resp.StatusCode >= http.StatusBadRequest {
			return nil
		}
		return fmt.Errorf("%s %s is not described, but answered %d", req.Method, req.URL.Path, resp.StatusCode)
	}
	req = at(req, pattern, body)
	if resp.StatusCode/100 == 2 {
		if ok, problems := s.requests.ValidateHttpRequestSync(req); !ok {
			return fmt.Errorf("%s %s was accepted: %w", req.Method, pattern, join(problems))
		}
	}
	copied := *resp
	copied.Body = io.NopCloser(bytes.NewReader(answer))
	if ok, problems := s.responses.ValidateHttpResponse(at(req, pattern, body), &copied); !ok {
		return fmt.Errorf("%s %s answered %d %s: %w", req.Method, pattern, resp.StatusCode, answer, join(problems))
	}
	return nil
}

// CheckSchema reports what of a piece of JSON is not as the schema of that name says: one event of a stream, for example.
func (s *Spec) CheckSchema(name string, raw []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	proxy, ok := s.model.Components.Schemas.Get(name)
	if !ok {
		return fmt.Errorf("schema %s is not described", name)
	}
	if ok, problems := schema_validation.NewSchemaValidator().ValidateSchemaBytes(proxy.Schema(), raw); !ok {
		return fmt.Errorf("%s is no %s: %w", raw, name, join(problems))
	}
	return nil
}

func (s *Spec) describes(method, pattern string) bool {
	item, ok := s.model.Paths.PathItems.Get(pattern)
	if !ok {
		return false
	}
	_, ok = item.GetOperations().Get(strings.ToLower(method))
	return ok
}

// at is req as it would be with plain path parameters: those of tests are not.
func at(req *http.Request, pattern string, body []byte) *http.Request {
	plain := req.Clone(req.Context())
	plain.URL.Path, plain.URL.RawPath = strings.NewReplacer("{id}", "x", "{channel}", "x").Replace(pattern), ""
	plain.Body, plain.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return plain
}

func join(problems []*validatorerrors.ValidationError) error {
	var errs []error
	for _, p := range problems {
		err := errors.New(p.Message + ": " + p.Reason)
		for _, s := range p.SchemaValidationErrors {
			err = fmt.Errorf("%w\n%s: %s", err, s.FieldPath, s.Reason)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Transport checks every exchange of a client against a description, and reports what is wrong. Streams pass: only their
// status and type are looked at.
type Transport struct {
	http.RoundTripper
	Spec   *Spec
	Report func(err error)
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	resp, err := t.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	var answer []byte
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		answer, err = io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return nil, err
		}
		resp.Body = io.NopCloser(bytes.NewReader(answer))
	}
	if err := t.Spec.Check(req, body, resp, answer); err != nil {
		t.Report(err)
	}
	return resp, nil
}
