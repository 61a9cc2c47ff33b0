// Package workspace owns the folders that tools work in: one per session, <root>/<tenant>/<skey>, open to this user only.
//
// Names are checked before they touch the file system, and folders are made through [os.Root], so that no name and no
// link can lead out of the root. It is safe for concurrent use.
package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/session"
)

const (
	folderMode   = 0o700
	maxTenantLen = 64
)

// Folders makes and finds workspaces.
type Folders struct {
	path string
	root *os.Root
}

// Open makes the root folder if it is missing.
func Open(path string) (*Folders, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("workspaces %s: %w", path, err)
	}
	// Landlock and HOME want the real path.
	if err := os.MkdirAll(abs, folderMode); err != nil {
		return nil, fmt.Errorf("make workspaces: %w", err)
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, fmt.Errorf("workspaces %s: %w", path, err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("open workspaces: %w", err)
	}
	return &Folders{path: abs, root: root}, nil
}

// Close ends the use of the root. Folders stay.
func (f *Folders) Close() error { return f.root.Close() }

// Ready reports whether the root can be written to.
func (f *Folders) Ready() error {
	const probe = ".ready"
	if err := f.root.WriteFile(probe, nil, 0o600); err != nil {
		return fmt.Errorf("write to workspaces: %w", err)
	}
	return nil
}

// Folder returns the absolute path of a session's workspace and makes it on first use. An empty tenant is the default.
func (f *Folders) Folder(tenant, skey string) (string, error) {
	tenant = TenantOrDefault(tenant)
	if err := errors.Join(CheckTenant(tenant), CheckSession(skey)); err != nil {
		return "", err
	}
	name := filepath.Join(tenant, skey)
	if err := f.root.MkdirAll(name, folderMode); err != nil {
		return "", fmt.Errorf("make workspace of %s: %w", skey, err)
	}
	return filepath.Join(f.path, name), nil
}

// TenantOrDefault returns the default tenant's name for "".
func TenantOrDefault(tenant string) string {
	if tenant == "" {
		return config.DefaultTenant
	}
	return tenant
}

// CheckTenant refuses what is no tenant name: [a-z0-9_-], at most 64.
func CheckTenant(tenant string) error {
	if len(tenant) > maxTenantLen {
		return fmt.Errorf("tenant: %d bytes, at most %d are allowed", len(tenant), maxTenantLen)
	}
	return bus.CheckToken("tenant", tenant)
}

// CheckSession refuses what is no skey: 26 characters of [a-z2-7].
func CheckSession(skey string) error {
	if len(skey) != session.SKeyLen {
		return fmt.Errorf("session: %d bytes, an skey has %d", len(skey), session.SKeyLen)
	}
	for i := range len(skey) {
		if c := skey[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return fmt.Errorf("session: %q holds %q, only a-z and 2-7 are allowed", skey, c)
		}
	}
	return nil
}
