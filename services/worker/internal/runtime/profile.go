package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/tool"
	"github.com/hermes-runtime/hermes/services/worker/internal/agentcache"
)

const (
	// listTimeout bounds the question which tools there are.
	listTimeout = 2 * time.Second
	// listAgain is how long a profile whose tools could not be listed goes without them.
	listAgain = 10 * time.Second
)

// profile is what agents are built from. Its tools are listed when the first run needs them, and kept.
type profile struct {
	name     string
	cfg      config.Profile
	provider config.Provider
	agent    agent.Config
	deps     agent.Deps
	logger   *slog.Logger

	mu     sync.Mutex
	listed *tool.Registry
	// lists counts how often they were listed.
	lists int
	// expires is set while the list stands in for one with the tools of a server.
	expires time.Time
}

type (
	agentCache = agentcache.Cache[*agent.Loop]
	agentLease = agentcache.Lease[*agent.Loop]
)

// errUnknownProfile: the session belongs to a profile that is not configured here.
var errUnknownProfile = errors.New("unknown profile")

func newProfiles(cfg config.Config, deps Deps, calls *sync.WaitGroup) (map[string]*profile, error) {
	profiles := map[string]*profile{}
	var errs []error
	for name, p := range cfg.Profiles {
		p = p.WithDefaults()
		model := deps.Models[p.Provider]
		if model == nil {
			errs = append(errs, fmt.Errorf("profiles.%s.provider: no model for %q", name, p.Provider))
			continue
		}
		provider := cfg.Providers[p.Provider]
		profiles[name] = &profile{
			name: name, cfg: p, provider: provider, logger: deps.Logger,
			agent: agent.Config{
				ModelName: cmp.Or(p.Model, provider.Model, provider.Kind), System: cmp.Or(p.Prompt, defaultPrompt),
				Steps: p.Limits.Steps, HistoryLimit: p.Limits.History, OutputTokens: p.Limits.OutputTokens,
				ToolTimeout: cfg.Toolexec.Timeout, ToolResultBytes: cfg.Toolexec.OutputBytes,
			},
			deps: agent.Deps{Model: model, Executor: deps.Executor, Go: calls.Go, Now: deps.Now, Tracer: deps.Tracer, Meter: deps.Meter},
		}
	}
	return profiles, errors.Join(errs...)
}

// hasTools reports whether the profile may call anything.
func (p *profile) hasTools() bool { return p.deps.Executor != nil && len(p.cfg.Tools) > 0 }

// agentOf returns the one with which a person speaks in a conversation: the one of a moment ago, if nothing has changed that it is
// built from. Release it when the run is over.
func (p *profile) agentOf(ctx context.Context, cache *agentCache, skey string, who session.Source) (agentLease, error) {
	tools, generation, err := p.toolset(ctx)
	if err != nil {
		return agentLease{}, err
	}
	signature, err := p.signature(generation, who)
	if err != nil {
		return agentLease{}, err
	}
	return cache.Acquire(ctx, agentcache.Key{Profile: p.name, Session: skey}, signature,
		func(context.Context) (*agent.Loop, error) { return p.build(tools) })
}

func (p *profile) signature(tools int, who session.Source) (agentcache.Signature, error) {
	return agentcache.Config{
		Model: p.agent.ModelName, Provider: p.provider.Kind, RequestedProvider: p.cfg.Provider, BaseURL: p.provider.BaseURL,
		Toolsets: p.cfg.Tools, Prompt: p.agent.System, UserID: who.UserID, UserIDAlt: who.UserIDAlt,
		Settings: map[string]any{"tools": tools, "steps": p.agent.Steps, "history": p.agent.HistoryLimit},
	}.Sign()
}

func (p *profile) build(tools *tool.Registry) (*agent.Loop, error) {
	deps := p.deps
	deps.Tools = tools
	loop, err := agent.New(p.agent, deps)
	if err != nil {
		return nil, fmt.Errorf("build agent of profile %s: %w", p.name, err)
	}
	return loop, nil
}

// toolset returns the tools of the profile and the number of their list. While no tool server answers, runs go on without
// its tools.
func (p *profile) toolset(ctx context.Context) (*tool.Registry, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listed != nil && (p.expires.IsZero() || time.Now().Before(p.expires)) {
		return p.listed, p.lists, nil
	}
	tools, err := p.tools(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return nil, 0, cause
	}
	p.listed, p.expires = tools, time.Time{}
	p.lists++
	if err != nil {
		p.logger.WarnContext(ctx, "running without tools", "profile", p.name, "err", err)
		p.expires = time.Now().Add(listAgain)
	}
	return p.listed, p.lists, nil
}

// tools returns what the profile may call; with an error only what runs in the worker. A tool with a broken schema is
// left out, the others stay.
func (p *profile) tools(ctx context.Context) (*tool.Registry, error) {
	specs := []tool.Spec{agent.AskUserSpec()} // first: nobody else can take its name
	var listErr error
	if p.hasTools() {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		var remote []tool.Spec
		if remote, listErr = p.deps.Executor.Tools(ctx); listErr != nil {
			listErr = fmt.Errorf("list tools: %w", listErr)
		}
		specs = append(specs, remote...)
	}
	registry, err := tool.NewRegistry(specs...)
	if err != nil {
		p.logger.WarnContext(ctx, "tools left out", "profile", p.name, "err", err)
	}
	return registry.Subset(p.cfg.Tools), listErr
}
