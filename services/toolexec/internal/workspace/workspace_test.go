package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const skey = "abcdefghijklmnopqrstuvwx27"

func open(t *testing.T) (*Folders, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "deep", "workspaces")
	f, err := Open(root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f, root
}

func TestFolder_IsMadePrivateOnFirstUse(t *testing.T) {
	t.Parallel()
	f, root := open(t)
	dir, err := f.Folder("acme", skey)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(root, "acme", skey), dir)
	for _, p := range []string{root, filepath.Dir(dir), dir} {
		info, err := os.Stat(p)
		require.NoError(t, err)
		require.Equal(t, os.ModeDir|0o700, info.Mode(), p)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	again, err := f.Folder("acme", skey)
	require.NoError(t, err)
	require.Equal(t, dir, again)
	require.FileExists(t, filepath.Join(dir, "f"))
}

func TestFolder_OfTheDefaultTenant(t *testing.T) {
	t.Parallel()
	f, root := open(t)
	dir, err := f.Folder("", skey)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(root, "default", skey), dir)
}

func TestFolder_RefusesNamesThatAreNone(t *testing.T) {
	t.Parallel()
	f, root := open(t)
	for _, tc := range []struct{ tenant, skey, want string }{
		{"..", skey, "tenant"},
		{"a/b", skey, "tenant"},
		{strings.Repeat("a", 65), skey, "tenant"},
		{"acme", "", "session"},
		{"acme", "../abcdefghijklmnopqrstuvw", "session"},
		{"acme", strings.ToUpper(skey), "session"},
		{"acme", skey + "a", "session"},
		{"acme", "abcdefghijklmnopqrstuvwx18", "session"},
	} {
		_, err := f.Folder(tc.tenant, tc.skey)
		require.ErrorContains(t, err, tc.want+":", "%q %q", tc.tenant, tc.skey)
	}
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestFolder_LinkInTheRootLeadsNowhere(t *testing.T) {
	t.Parallel()
	f, root := open(t)
	outside := t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "acme")))
	_, err := f.Folder("acme", skey)
	require.Error(t, err)
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestReady_FailsWhenTheRootIsGone(t *testing.T) {
	t.Parallel()
	f, root := open(t)
	require.NoError(t, f.Ready())
	require.NoError(t, os.RemoveAll(root))
	require.ErrorContains(t, f.Ready(), "write to workspaces")
}

func TestOpen_RefusesAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Open(file)
	require.ErrorContains(t, err, "make workspaces")
}
