// Command worker runs turns: it claims runs, drives the ReAct loop and finishes them.
package main

import (
	"context"
	"os"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/rpc"
	"github.com/hermes-runtime/hermes/pkg/tool/toolrpc"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/internal/process"
	"github.com/hermes-runtime/hermes/services/worker/app"
)

func main() {
	os.Exit(process.Main(process.Service{
		Name:  "worker",
		Needs: backends.Needs{Bus: true, Leases: true, Store: true},
		Build: build,
	}))
}

func build(_ context.Context, cfg config.Config, b backends.Backends) (process.App, []daemon.Named, error) {
	models, err := app.OpenModels(cfg)
	if err != nil {
		return nil, nil, err
	}
	conn, err := rpc.Dial(cfg.Worker.ToolexecAddr, b.Traces)
	if err != nil {
		return nil, nil, err
	}
	a, err := app.New(cfg, b, app.Deps{Models: models, Executor: toolrpc.New(conn)})
	return a, []daemon.Named{{Name: "toolexec connection", Component: daemon.Closer(conn.Close)}}, err
}
