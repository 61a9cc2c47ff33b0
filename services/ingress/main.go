// Command ingress accepts messages from platforms and webhooks.
package main

import (
	"context"
	"os"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/services/ingress/app"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/internal/process"
)

func main() {
	os.Exit(process.Main(process.Service{
		Name:  "ingress",
		Needs: backends.Needs{Bus: true, Aliases: true},
		Build: func(_ context.Context, cfg config.Config, b backends.Backends) (process.App, []daemon.Named, error) {
			a, err := app.New(cfg, b)
			return a, nil, err
		},
	}))
}
