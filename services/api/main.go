// Command api serves the HTTP API.
package main

import (
	"context"
	"os"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/services/api/app"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/internal/process"
)

func main() {
	os.Exit(process.Main(process.Service{
		Name:  "api",
		Needs: backends.Needs{Bus: true, Store: true, Limits: true},
		Build: func(_ context.Context, cfg config.Config, b backends.Backends) (process.App, []daemon.Named, error) {
			a, err := app.New(cfg, b)
			return a, nil, err
		},
	}))
}
