package app_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/config"
)

// roles gives each role a key, and bob of another tenant.
func roles(t *testing.T) *api {
	t.Helper()
	return setupWith(t, timing(), func(c *config.Config) {
		c.Tenants["acme"] = config.Tenant{}
		c.API.Keys = map[string]config.APIKey{
			"plain":  {Secret: secretFile(t, "plain"), User: "ann"},
			"user":   {Secret: secretFile(t, "user"), User: "ann", Roles: []string{"user"}},
			"reader": {Secret: secretFile(t, "reader"), User: "rob", Roles: []string{"reader"}},
			"both":   {Secret: secretFile(t, "both"), User: "rob", Roles: []string{"reader", "user"}},
			"admin":  {Secret: secretFile(t, "admin"), User: "root", Roles: []string{"admin"}},
			"bob":    {Secret: secretFile(t, "bob"), User: "bob", Tenant: "acme", Roles: []string{"user", "reader"}},
			"boss":   {Secret: secretFile(t, "boss"), User: "boss", Tenant: "acme", Roles: []string{"admin"}},
		}
	})
}

func as(key string) []string { return []string{"Authorization", "Bearer " + key} }

func TestRoles_SayWhatAKeyMayDo(t *testing.T) {
	t.Parallel()
	d := roles(t)
	d.say("x", as("user")...)
	r := d.admit(1, "").begin()
	run := "/v1/runs/" + r.id.String()
	for key, want := range map[string]struct{ read, write, run int }{
		"plain": {200, 202, 200}, "user": {200, 202, 200}, "both": {200, 202, 200}, "admin": {200, 202, 200},
		"reader": {200, 403, 200}, "bob": {404, 202, 404}, "boss": {404, 202, 200},
	} {
		require.Equal(t, want.read, d.get("/v1/sessions/s", as(key)...).status, key)
		require.Equal(t, want.run, d.get(run, as(key)...).status, key)
		require.Equal(t, 200, d.get("/v1/models", as(key)...).status, key)
		require.Equal(t, want.write, d.do(http.MethodPost, "/v1/sessions/of-"+key+"/messages", jsonHeader(as(key)...), `{"text":"x"}`).status, key)
		if want.write == 403 {
			for _, path := range []string{completions, run + "/cancel", "/v1/sessions/s/messages"} {
				a := d.do(http.MethodPost, path, jsonHeader(as(key)...), asked)
				require.Equal(t, 403, a.status, path)
				require.Equal(t, problem{
					Message: "the roles of this key allow reading only", Type: "permission_error", Code: "role_not_allowed",
				}, a.problem(t))
			}
		}
	}
	stored := d.Stored(t)
	require.Equal(t, http.StatusNotFound, d.cancel(r.id.String(), as("bob")...).status)
	require.Equal(t, http.StatusNotFound, d.cancel(r.message(), as("bob")...).status)
	require.Equal(t, stored, d.Stored(t))
	require.Equal(t, http.StatusAccepted, d.cancel(r.id.String(), as("boss")...).status)
	require.Equal(t, config.DefaultTenant, d.received(stored+1).Tenant, "the stop belongs to the tenant of the run")
}

func TestQuota_BoundsEachKey(t *testing.T) {
	t.Parallel()
	d := setupWith(t, timing(), func(c *config.Config) {
		c.API.RequestsPerMinute = 2
		c.API.Keys = map[string]config.APIKey{
			"one":   {Secret: secretFile(t, "one"), User: "ann"},
			"two":   {Secret: secretFile(t, "two"), User: "ann"},
			"three": {Secret: secretFile(t, "three"), User: "ann", RequestsPerMinute: 3},
		}
	})
	for key, limit := range map[string]int{"one": 2, "two": 2, "three": 3} {
		for range limit {
			a := d.get("/v1/models", as(key)...)
			require.Equal(t, http.StatusOK, a.status, key)
			require.Equal(t, strconv.Itoa(limit), a.header.Get("X-Ratelimit-Limit-Requests"))
		}
		a := d.post(`{"text":"x"}`, as(key)...)
		require.Equal(t, http.StatusTooManyRequests, a.status, key)
		require.Equal(t, problem{
			Message: "over " + strconv.Itoa(limit) + " requests per minute", Type: "rate_limit_error", Code: "rate_limit_exceeded",
		}, a.problem(t))
		seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
		require.NoError(t, err)
		require.True(t, seconds > 0 && seconds <= 60/limit, "%d s", seconds)
		reset, err := time.ParseDuration(a.header.Get("X-Ratelimit-Reset-Requests"))
		require.NoError(t, err)
		require.LessOrEqual(t, reset, time.Duration(seconds)*time.Second, "what is told in seconds is rounded up")
		require.Greater(t, reset, time.Duration(seconds-1)*time.Second-time.Millisecond)
		require.Equal(t, "0", a.header.Get("X-Ratelimit-Remaining-Requests"))
	}
	require.Equal(t, http.StatusUnauthorized, d.get("/v1/models", as("wrong")...).status)
	require.Zero(t, d.Stored(t))
}

func TestQuota_BoundsTheLocalUser(t *testing.T) {
	t.Parallel()
	d := setupWith(t, timing(), func(c *config.Config) { c.API.RequestsPerMinute = 1 })
	require.Equal(t, http.StatusOK, d.get("/v1/models").status)
	require.Equal(t, http.StatusTooManyRequests, d.get("/v1/models").status)

	free := setupWith(t, timing(), func(c *config.Config) { c.API.RequestsPerMinute = 0 })
	for range 3 {
		a := free.get("/v1/models")
		require.Equal(t, http.StatusOK, a.status)
		require.Empty(t, a.header.Get("X-Ratelimit-Limit-Requests"))
	}
}
