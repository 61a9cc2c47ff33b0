package redislease

import (
	"context"
	_ "embed"
	"errors"

	"github.com/redis/go-redis/v9"
)

// pipelineSize bounds the commands of one round trip.
const pipelineSize = 500

//go:embed acquire.lua
var acquireSource string

//go:embed renew.lua
var renewSource string

//go:embed release.lua
var releaseSource string

//go:embed own.lua
var ownSource string

//go:embed join.lua
var joinSource string

// script is a Lua script and its hash, by which the server knows it. redis.Script would do, but it forgets its hash when
// it is loaded in a pipeline.
type script struct {
	source, sha string
}

// scripts touch one key each, so they work on a cluster too.
type scripts struct {
	acquire, renew, release, own, join script
}

func newScripts() scripts {
	return scripts{
		acquire: newScript(acquireSource),
		renew:   newScript(renewSource),
		release: newScript(releaseSource),
		own:     newScript(ownSource),
		join:    newScript(joinSource),
	}
}

func newScript(source string) script { return script{source, redis.NewScript(source).Hash()} }

// call is one execution of a script.
type call struct {
	key  string
	args []any
}

// runAll executes s once per call and returns the answers in their order.
func (l *Leases) runAll(ctx context.Context, s script, calls []call) ([]any, error) {
	answers := make([]any, 0, len(calls))
	for len(calls) > 0 {
		n := min(len(calls), pipelineSize)
		batch, err := l.runBatch(ctx, s, calls[:n])
		if err != nil {
			return nil, err
		}
		answers = append(answers, batch...)
		calls = calls[n:]
	}
	return answers, nil
}

// runBatch is one round trip, or two if the server does not know the script: then those calls that found none are
// repeated.
func (l *Leases) runBatch(ctx context.Context, s script, calls []call) ([]any, error) {
	answers := make([]any, len(calls))
	unknown, err := l.pipeline(ctx, s, calls, answers, nil)
	if err != nil || len(unknown) == 0 {
		return answers, err
	}
	unknown, err = l.pipeline(ctx, s, calls, answers, unknown)
	if err == nil && len(unknown) > 0 {
		err = errors.New("script was not loaded")
	}
	return answers, err
}

// pipeline runs the calls named by only, after loading the script, or all if only is nil. It returns the calls that
// the server refused because it does not know the script.
func (l *Leases) pipeline(ctx context.Context, s script, calls []call, answers []any, only []int) ([]int, error) {
	pipe := l.client.Pipeline()
	if only != nil {
		pipe.ScriptLoad(ctx, s.source)
	} else {
		only = indexes(len(calls))
	}
	cmds := make([]*redis.Cmd, len(only))
	for i, at := range only {
		cmds[i] = pipe.EvalSha(ctx, s.sha, []string{calls[at].key}, calls[at].args...)
	}
	if _, err := pipe.Exec(ctx); err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return nil, err
	}
	var unknown []int
	for i, at := range only {
		answer, err := cmds[i].Result()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			unknown = append(unknown, at)
			continue
		}
		if err != nil {
			return nil, err
		}
		answers[at] = answer
	}
	return unknown, nil
}

func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
