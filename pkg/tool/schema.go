package tool

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Tool is a spec with its schema compiled.
type Tool struct {
	Spec
	schema *jsonschema.Schema
}

// emptyObject is the schema of a tool that declares none.
const emptyObject = `{"type":"object","properties":{}}`

const schemaURL = "urn:hermes:tool"

func compile(spec Spec) (*Tool, error) {
	switch spec.Effect {
	case Read, Idempotent, Unsafe:
	default:
		return nil, fmt.Errorf("effect %q is not read, idempotent or unsafe", spec.Effect)
	}
	if len(bytes.TrimSpace(spec.Parameters)) == 0 {
		spec.Parameters = []byte(emptyObject)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(spec.Parameters))
	if err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	if object, ok := doc.(map[string]any); !ok || object["type"] != "object" {
		return nil, errors.New("parameters: not a schema of type object")
	}
	schema, err := compileSchema(doc)
	if err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	return &Tool{Spec: spec, schema: schema}, nil
}

// compileSchema allows no references to files or to the network: schemas come from tool servers.
func compileSchema(doc any) (*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, err
	}
	return c.Compile(schemaURL)
}
