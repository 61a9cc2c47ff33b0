package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// ArgumentError says what is wrong with the arguments of a call; its text is written for the model.
type ArgumentError struct {
	Reason string
}

func (e *ArgumentError) Error() string { return e.Reason }

// CheckArguments turns what a model wrote into the arguments of a call: one JSON object, valid by the schema, paths
// clean and inside the workspace. Nothing, null and blanks are the empty object; an object inside a JSON string is
// unwrapped; a string where the schema wants another type becomes that value if it is one ("5", "true"); null for an
// optional field is left out. Anything else is an *ArgumentError and must not be executed.
func (t *Tool) CheckArguments(raw string) (json.RawMessage, error) {
	args, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	args, _ = coerce(t.schema, args).(map[string]any)
	if err := t.schema.Validate(args); err != nil {
		return nil, explain(err)
	}
	if err := t.cleanPaths(args); err != nil {
		return nil, err
	}
	checked, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("encode arguments: %w", err)
	}
	return checked, nil
}

// Object returns raw as a compact JSON object if it is one, else {}: the form in which refused arguments stay in a
// history that providers parse.
func Object(raw string) string {
	args, err := parseObject(raw)
	if err != nil {
		return "{}"
	}
	compact, err := json.Marshal(scrub(args))
	if err != nil {
		return "{}"
	}
	return string(compact)
}

func notOneObject(format string, args ...any) error {
	return &ArgumentError{Reason: "arguments are not one JSON object: " + fmt.Sprintf(format, args...)}
}

func parseObject(raw string) (map[string]any, error) {
	value, err := parseValue(raw)
	if text, ok := value.(string); ok && err == nil {
		value, err = parseValue(text)
	}
	if err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case nil:
		return map[string]any{}, nil
	case map[string]any:
		return v, nil
	default:
		return nil, notOneObject("got %s", typeName(v))
	}
}

// parseValue reads exactly one JSON value; blanks are null.
func parseValue(raw string) (any, error) {
	if strings.TrimSpace(raw) == "" {
		return nil, nil
	}
	dec := json.NewDecoder(strings.NewReader(raw))
	dec.UseNumber()
	var value any
	switch err := dec.Decode(&value); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, notOneObject("cut off after %d bytes", len(raw))
	case err != nil:
		return nil, notOneObject("%v", err)
	}
	end := dec.InputOffset()
	if strings.TrimSpace(raw[end:]) != "" {
		return nil, notOneObject("more follows after byte %d; make one call per object", end)
	}
	return value, nil
}

func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	default:
		return "object"
	}
}

// coerce returns v with safe repairs. The schema may be nil where it says nothing.
func coerce(s *jsonschema.Schema, v any) any {
	for s != nil && s.Ref != nil && s.Types == nil {
		s = s.Ref
	}
	switch v := v.(type) {
	case map[string]any:
		return coerceObject(s, v)
	case []any:
		for i := range v {
			v[i] = coerce(itemSchema(s), v[i])
		}
		return v
	case string:
		return unquote(s, scrubText(v))
	default:
		return v
	}
}

func coerceObject(s *jsonschema.Schema, object map[string]any) map[string]any {
	for name, value := range object {
		property := propertySchema(s, name)
		if value == nil && property != nil && !slices.Contains(s.Required, name) && !accepts(property, "null") {
			delete(object, name)
			continue
		}
		object[name] = coerce(property, value)
	}
	return object
}

func propertySchema(s *jsonschema.Schema, name string) *jsonschema.Schema {
	if s == nil {
		return nil
	}
	return s.Properties[name]
}

func itemSchema(s *jsonschema.Schema) *jsonschema.Schema {
	if s == nil {
		return nil
	}
	if items, ok := s.Items.(*jsonschema.Schema); ok { // drafts before 2020-12
		return items
	}
	return s.Items2020
}

// accepts reports whether a schema names a type; one that names none accepts all.
func accepts(s *jsonschema.Schema, name string) bool {
	return s == nil || s.Types == nil || slices.Contains(s.Types.ToStrings(), name)
}

// unquote returns the value inside a string if the schema wants its type and no string.
func unquote(s *jsonschema.Schema, text string) any {
	if accepts(s, "string") {
		return text
	}
	value, err := parseValue(text)
	if err != nil || value == nil {
		return text
	}
	name := typeName(value)
	if accepts(s, name) || name == "number" && accepts(s, "integer") {
		return coerce(s, value)
	}
	return text
}

// scrub removes what no store takes from every string of a value.
func scrub(v any) any { return coerce(nil, v) }

func scrubText(text string) string { return strings.ReplaceAll(text, "\x00", "") }

func (t *Tool) cleanPaths(args map[string]any) error {
	for _, name := range t.PathArguments {
		switch v := args[name].(type) {
		case string:
			clean, err := cleanPath(name, v)
			if err != nil {
				return err
			}
			args[name] = clean
		case []any:
			if err := cleanPathList(name, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func cleanPathList(name string, list []any) error {
	for i, item := range list {
		text, ok := item.(string)
		if !ok {
			continue
		}
		clean, err := cleanPath(fmt.Sprintf("%s[%d]", name, i), text)
		if err != nil {
			return err
		}
		list[i] = clean
	}
	return nil
}

// cleanPath keeps lexical escapes out; what links inside the workspace point to is for the tool server to check.
func cleanPath(name, p string) (string, error) {
	clean := path.Clean(strings.TrimSpace(p))
	if path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") {
		return "", &ArgumentError{Reason: fmt.Sprintf(
			"%s: %q is outside the workspace; give a path relative to it, such as notes/a.txt", name, p)}
	}
	return clean, nil
}

// explain names each field and what is wrong with it.
func explain(err error) error {
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return &ArgumentError{Reason: "arguments: " + err.Error()}
	}
	printer := message.NewPrinter(language.English)
	var problems []string
	for _, leaf := range leaves(invalid) {
		problems = append(problems, problem(leaf, printer))
	}
	return &ArgumentError{Reason: "invalid arguments: " + strings.Join(problems, "; ")}
}

func leaves(e *jsonschema.ValidationError) []*jsonschema.ValidationError {
	if len(e.Causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	var all []*jsonschema.ValidationError
	for _, cause := range e.Causes {
		all = append(all, leaves(cause)...)
	}
	return all
}

func problem(e *jsonschema.ValidationError, printer *message.Printer) string {
	where := strings.Join(e.InstanceLocation, ".")
	if missing, ok := e.ErrorKind.(*kind.Required); ok {
		fields := make([]string, len(missing.Missing))
		for i, name := range missing.Missing {
			fields[i] = strings.TrimPrefix(where+"."+name, ".")
		}
		return strings.Join(fields, ", ") + ": missing, but required"
	}
	if where == "" {
		where = "arguments"
	}
	return where + ": " + e.ErrorKind.LocalizedString(printer)
}
