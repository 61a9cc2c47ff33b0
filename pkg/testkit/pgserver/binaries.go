//go:build unix

package pgserver

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// errNoBinaries names what is missing: a test that needs a server must fail, never skip.
var errNoBinaries = errors.New("pgserver: no postgres and initdb found in $PATH, pg_config --bindir or " +
	"/usr/lib/postgresql/*/bin: install PostgreSQL 15 or newer (Debian: apt-get install postgresql)")

// packageRoot is where Debian and its relatives put the versions of PostgreSQL.
const packageRoot = "/usr/lib/postgresql"

// findBinaries returns the directory that holds postgres and initdb.
func findBinaries(ctx context.Context, root string) (string, error) {
	for _, dir := range candidates(ctx, root) {
		if executable(filepath.Join(dir, "postgres")) && executable(filepath.Join(dir, "initdb")) {
			return dir, nil
		}
	}
	return "", errNoBinaries
}

func candidates(ctx context.Context, root string) []string {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	// Without pg_config the other places are left.
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	return append(dirs, packaged(root)...)
}

// packaged lists root/<major version>/bin, newest first.
func packaged(root string) []string {
	// The only error is a malformed pattern.
	dirs, _ := filepath.Glob(filepath.Join(root, "*", "bin"))
	slices.SortFunc(dirs, func(a, b string) int { return major(b) - major(a) })
	return dirs
}

func major(binDir string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(binDir)))
	if err != nil {
		return 0
	}
	return n
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
