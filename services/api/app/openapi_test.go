package app_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/services/internal/httpapi/openapitest"
)

// described is docs/openapi.yaml. Every exchange of the tests of this package is held to it, see setupWith.
var described = sync.OnceValues(func() (*openapitest.Spec, error) { return openapitest.Load("../../../docs/openapi.yaml") })

func checked(t *testing.T, next http.RoundTripper) http.RoundTripper {
	t.Helper()
	spec, err := described()
	require.NoError(t, err)
	return &openapitest.Transport{RoundTripper: next, Spec: spec, Report: func(err error) { t.Errorf("not as described: %v", err) }}
}

func TestOpenAPI_DescribesEveryRoute(t *testing.T) {
	t.Parallel()
	spec, err := described()
	require.NoError(t, err)
	routes := setup(t).app.Routes()
	slices.SortFunc(routes, openapitest.CompareRoutes)
	require.Equal(t, spec.Routes("platforms", true), routes)
}
