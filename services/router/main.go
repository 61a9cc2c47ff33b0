// Command router admits messages into the inbox and dispatches runs.
package main

import (
	"context"
	"os"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/internal/process"
	"github.com/hermes-runtime/hermes/services/router/app"
)

func main() {
	os.Exit(process.Main(process.Service{
		Name:  "router",
		Needs: backends.Needs{Bus: true, Leases: true, Store: true},
		Build: func(_ context.Context, cfg config.Config, b backends.Backends) (process.App, []daemon.Named, error) {
			a, err := app.New(cfg, b)
			return a, nil, err
		},
	}))
}
