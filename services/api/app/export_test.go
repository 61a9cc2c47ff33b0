package app

import "github.com/hermes-runtime/hermes/services/internal/httpapi"

// NewWithTiming is New for tests that do not want to wait.
var NewWithTiming = build

// Routes are all routes of the service.
func (a *App) Routes() []httpapi.Route { return a.routes.All() }
