// Package auth says who sends a request, the owner of a bearer key or the local user where no keys are configured, and
// what they may do.
//
// Keys are read once and kept as hashes. Without keys the service answers on a loopback address only, and only under a
// name of this machine, so that a web page cannot reach it by a DNS name of its own. Safe for concurrent use.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// Principal is who sends a request.
type Principal struct {
	// Key is the name of the key in the configuration, "" where there are no keys.
	Key    string
	Tenant string
	User   string
	Roles  []string
	// RequestsPerMinute bounds this key instead of the common bound; 0: the common one.
	RequestsPerMinute int
}

// What a principal may do. Without any role it is a user.
const (
	// RoleUser talks to the agents of its tenant and reads what they say.
	RoleUser = "user"
	// RoleReader only reads.
	RoleReader = "reader"
	// RoleAdmin may do everything, to runs of every tenant.
	RoleAdmin = "admin"
)

// Sees reports whether what belongs to tenant exists for p.
func (p Principal) Sees(tenant string) bool {
	return p.Tenant == tenant || p.Admin()
}

// Admin reports whether p is an operator.
func (p Principal) Admin() bool { return slices.Contains(p.Roles, RoleAdmin) }

// may reports whether p may send a request with this method.
func (p Principal) may(method string) bool {
	if method == http.MethodGet || method == http.MethodHead {
		return true // every role reads
	}
	return len(p.Roles) == 0 || slices.Contains(p.Roles, RoleUser) || p.Admin()
}

// localUser owns everything on a server without keys.
const localUser = "local"

// Authenticator knows the keys.
type Authenticator struct {
	keys []key
}

type key struct {
	hash      [sha256.Size]byte
	principal Principal
}

// New reads the keys of cfg. Problems begin with the configuration key and never hold a secret.
func New(cfg config.API) (*Authenticator, error) {
	if len(cfg.Keys) == 0 && !config.Loopback(cfg.Addr) {
		return nil, fmt.Errorf("api.keys: at least one is needed unless api.addr %s is a loopback address", cfg.Addr)
	}
	a := &Authenticator{}
	var errs []error
	owners := map[[sha256.Size]byte]string{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Keys)) {
		k, err := newKey(cfg.Keys[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("api.keys.%s.secret: %w", name, err))
			continue
		}
		if other, taken := owners[k.hash]; taken {
			errs = append(errs, fmt.Errorf("api.keys.%s.secret: is that of api.keys.%s too", name, other))
		}
		owners[k.hash] = name
		k.principal.Key = name
		a.keys = append(a.keys, k)
	}
	return a, errors.Join(errs...)
}

func newKey(c config.APIKey) (key, error) {
	secret, err := c.Secret.Value()
	if err != nil {
		return key{}, err // names the reference; the caller adds the configuration key
	}
	if secret == "" {
		return key{}, errors.New("must not be empty")
	}
	return key{
		hash:      sha256.Sum256([]byte(secret)),
		principal: Principal{Tenant: c.TenantName(), User: c.User, Roles: c.Roles, RequestsPerMinute: c.RequestsPerMinute},
	}, nil
}

// contextKey is the key of the Principal in a context.
type contextKey struct{}

// From returns the sender of a request that passed [Authenticator.Require]; the zero Principal elsewhere.
func From(ctx context.Context) Principal {
	p, _ := ctx.Value(contextKey{}).(Principal)
	return p
}

// Require lets requests of known senders pass to next, if their roles allow the method.
func (a *Authenticator) Require(next httpapi.Handler) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		p, err := a.principal(r)
		if err != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			return err
		}
		if !p.may(r.Method) {
			return &httpapi.Error{
				Status: http.StatusForbidden, Type: httpapi.TypePermission, Code: "role_not_allowed",
				Message: "the roles of this key allow reading only",
			}
		}
		return next(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, p)))
	}
}

func (a *Authenticator) principal(r *http.Request) (Principal, error) {
	if len(a.keys) == 0 {
		return local(r)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return Principal{}, unauthorized("missing_api_key", "Authorization", "a bearer key is needed")
	}
	if p, ok := a.find(strings.TrimSpace(token)); ok {
		return p, nil
	}
	return Principal{}, unauthorized("invalid_api_key", "Authorization", "the bearer key is not known")
}

// find compares with every key, so that its time does not tell which one is close.
func (a *Authenticator) find(token string) (found Principal, ok bool) {
	hash := sha256.Sum256([]byte(token))
	for i := range a.keys {
		if subtle.ConstantTimeCompare(hash[:], a.keys[i].hash[:]) == 1 {
			found, ok = a.keys[i].principal, true
		}
	}
	return found, ok
}

// local is the only user of a server without keys.
func local(r *http.Request) (Principal, error) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil { // without a port
		host = strings.Trim(r.Host, "[]")
	}
	if !config.Loopback(net.JoinHostPort(host, "0")) {
		return Principal{}, unauthorized("host_not_allowed", "Host", "without keys the API answers on localhost only")
	}
	return Principal{Tenant: config.DefaultTenant, User: localUser, Roles: []string{RoleAdmin}}, nil
}

func unauthorized(code, header, problem string) *httpapi.Error {
	return &httpapi.Error{
		Status: http.StatusUnauthorized, Type: httpapi.TypeAuth, Param: header, Code: code, Message: header + ": " + problem,
	}
}
