//go:build unix

package pgserver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func install(t *testing.T, dir string, names ...string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range names {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
	}
}

func TestFindBinaries_WithoutAnySaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := findBinaries(t.Context(), t.TempDir())
	require.ErrorIs(t, err, errNoBinaries)
	require.ErrorContains(t, err, "install PostgreSQL 15 or newer")
}

func TestFindBinaries_TakesTheNewestPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	root := t.TempDir()
	install(t, filepath.Join(root, "9", "bin"), "postgres", "initdb")
	install(t, filepath.Join(root, "16", "bin"), "postgres", "initdb")
	install(t, filepath.Join(root, "17", "bin"), "initdb") // the client tools alone are not enough
	dir, err := findBinaries(t.Context(), root)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(root, "16", "bin"), dir)
}

func TestFindBinaries_PrefersThePath(t *testing.T) {
	path, root := t.TempDir(), t.TempDir()
	t.Setenv("PATH", path)
	install(t, path, "postgres", "initdb")
	install(t, filepath.Join(root, "16", "bin"), "postgres", "initdb")
	dir, err := findBinaries(t.Context(), root)
	require.NoError(t, err)
	require.Equal(t, path, dir)
}
