// Command toolexec runs tools in sandboxes. It holds no credential of any store, bus or model.
package main

import (
	"context"
	"os"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/internal/process"
	"github.com/hermes-runtime/hermes/services/toolexec/app"
)

func main() {
	if app.IsChild(os.Args) { // one tool call in its own process
		os.Exit(app.RunChild())
	}
	os.Exit(process.Main(process.Service{
		Name: "toolexec",
		Build: func(_ context.Context, cfg config.Config, b backends.Backends) (process.App, []daemon.Named, error) {
			//nolint:contextcheck // each call brings its own
			a, err := app.New(cfg.Toolexec, app.Deps{Logger: b.Logger, TracerProvider: b.Traces, MeterProvider: b.Meters})
			return a, nil, err
		},
	}))
}
