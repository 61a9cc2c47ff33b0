package tool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Registry holds tools with compiled schemas, sorted by name. It is immutable and safe for concurrent use.
type Registry struct {
	tools  []*Tool
	byName map[string]*Tool
}

// NewRegistry compiles the schemas of specs. A tool that is unusable (no name, name taken, broken schema) is left out,
// so that it cannot take the others with it: the registry is valid also with an error, which joins what is wrong with
// those that were left out.
func NewRegistry(specs ...Spec) (*Registry, error) {
	r := NoTools()
	var errs []error
	for _, spec := range specs {
		errs = append(errs, r.add(spec))
	}
	slices.SortFunc(r.tools, byName)
	return r, errors.Join(errs...)
}

// NoTools returns an empty registry.
func NoTools() *Registry { return &Registry{byName: map[string]*Tool{}} }

func (r *Registry) add(spec Spec) error {
	if spec.Name == "" {
		return errors.New("tool without a name")
	}
	if r.byName[spec.Name] != nil {
		return fmt.Errorf("tool %s: name is taken", spec.Name)
	}
	t, err := compile(spec)
	if err != nil {
		return fmt.Errorf("tool %s: %w", spec.Name, err)
	}
	r.put(t)
	return nil
}

func (r *Registry) put(t *Tool) {
	r.byName[t.Name] = t
	r.tools = append(r.tools, t)
}

func byName(a, b *Tool) int { return cmp.Compare(a.Name, b.Name) }

// Subset returns the tools that a profile allows: all of them for "*", else those that are named. Names that do not
// exist are ignored, since tools come and go with their servers.
func (r *Registry) Subset(allowed []string) *Registry {
	if slices.Contains(allowed, "*") {
		return r
	}
	s := NoTools()
	for _, t := range r.tools {
		if slices.Contains(allowed, t.Name) {
			s.put(t)
		}
	}
	return s
}

// Lookup finds a tool by the name that a model wrote: exactly, else without regard to case, outer space and the choice
// of "-", " " or "_".
func (r *Registry) Lookup(name string) (*Tool, bool) {
	if t, ok := r.byName[name]; ok {
		return t, true
	}
	want := foldName(name)
	for _, t := range r.tools {
		if foldName(t.Name) == want {
			return t, true
		}
	}
	return nil, false
}

func foldName(name string) string {
	return strings.NewReplacer("-", "_", " ", "_").Replace(strings.ToLower(strings.TrimSpace(name)))
}

// Specs returns the tools sorted by name.
func (r *Registry) Specs() []Spec {
	specs := make([]Spec, len(r.tools))
	for i, t := range r.tools {
		specs[i] = t.Spec
	}
	return specs
}

// Names returns the names, sorted.
func (r *Registry) Names() []string {
	names := make([]string, len(r.tools))
	for i, t := range r.tools {
		names[i] = t.Name
	}
	return names
}
