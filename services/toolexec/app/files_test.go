package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/config"
)

func (b *bundle) workspace(session string) string { return filepath.Join(b.root, "acme", session) }

func (b *bundle) put(t *testing.T, session, name, content string) {
	t.Helper()
	path := filepath.Join(b.workspace(session), name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func TestFiles_WriteThenRead(t *testing.T) {
	t.Parallel()
	b := start(t)
	res := b.call(t, alice, "write_file", args{"path": "notes/today.md", "content": "eins\nzwei ü\n"})
	require.Equal(t, "wrote 13 bytes to notes/today.md\n", res.GetContent())
	require.Equal(t, []string{"notes/today.md"}, res.GetChangedFiles())
	require.Equal(t, "eins\nzwei ü\n", b.ok(t, alice, "read_file", args{"path": " ./notes/today.md "}))
	entries, err := os.ReadDir(filepath.Join(b.workspace(alice), "notes"))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file is left")
}

func TestWriteFile_ReplacesAndKeepsTheMode(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.put(t, alice, "run.sh", "old old old")
	require.NoError(t, os.Chmod(filepath.Join(b.workspace(alice), "run.sh"), 0o700))
	b.ok(t, alice, "write_file", args{"path": "run.sh", "content": ""})
	info, err := os.Stat(filepath.Join(b.workspace(alice), "run.sh"))
	require.NoError(t, err)
	require.Zero(t, info.Size())
	require.Equal(t, os.FileMode(0o700), info.Mode())
}

func TestFiles_OfAnotherSessionAreElsewhere(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.ok(t, alice, "write_file", args{"path": "f", "content": "of alice"})
	require.Equal(t, "f does not exist", b.no(t, bob, "read_file", args{"path": "f"}))
	require.Equal(t, "[the workspace is empty]\n", b.ok(t, bob, "list_files", nil))
}

func TestFiles_PathsCannotEscape(t *testing.T) {
	t.Parallel()
	b := start(t)
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("hunter2"), 0o644))
	b.put(t, alice, "in/f", "fine")
	ws := b.workspace(alice)
	require.NoError(t, os.Symlink(outside, filepath.Join(ws, "absolute")))
	require.NoError(t, os.Symlink("../../../..", filepath.Join(ws, "up")))
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(ws, "file")))
	require.NoError(t, os.Symlink("in/f", filepath.Join(ws, "good")))
	for path, want := range map[string]string{
		"/etc/passwd":      "argument path: /etc/passwd is absolute, paths are relative to the workspace",
		"../" + bob + "/f": "argument path: ../" + bob + "/f leaves the workspace",
		"in/../../x":       "argument path: in/../../x leaves the workspace",
		"absolute/secret":  "absolute/secret: path escapes from parent",
		"up/etc/passwd":    "up/etc/passwd: path escapes from parent",
		"file":             "file: path escapes from parent",
		"":                 "argument path: must not be empty",
		"a\x00b":           "argument path: holds a NUL byte",
	} {
		require.Equal(t, want, b.no(t, alice, "read_file", args{"path": path}))
		require.Equal(t, want, b.no(t, alice, "write_file", args{"path": path, "content": "x"}), path)
	}
	require.Contains(t, b.no(t, alice, "list_files", args{"path": "absolute"}), "path escapes from parent")
	require.Contains(t, b.no(t, alice, "search_files", args{"path": "up", "pattern": "x"}), "path escapes from parent")
	require.Equal(t, "[no line in 1 files matches]\n", b.ok(t, alice, "search_files", args{"pattern": "hunter2"}))
	require.Equal(t, "fine", b.ok(t, alice, "read_file", args{"path": "good"}))
	raw, err := os.ReadFile(filepath.Join(outside, "secret"))
	require.NoError(t, err)
	require.Equal(t, "hunter2", string(raw))
}

func TestReadFile_ComesInParts(t *testing.T) {
	t.Parallel()
	b := start(t)
	var text strings.Builder
	for i := 1; i <= 2500; i++ {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	b.put(t, alice, "long", text.String())
	require.Equal(t, "line 7\nline 8\n[more lines follow, read on with offset 9]\n",
		b.ok(t, alice, "read_file", args{"path": "long", "offset": 7, "limit": 2}))
	all := b.ok(t, alice, "read_file", args{"path": "long"})
	require.True(t, strings.HasSuffix(all, "line 2000\n[more lines follow, read on with offset 2001]\n"))
	require.Equal(t, "line 2499\nline 2500\n", b.ok(t, alice, "read_file", args{"path": "long", "offset": 2499}))
	require.Equal(t, "long: has only 2500 lines", b.no(t, alice, "read_file", args{"path": "long", "offset": 2501}))
	require.Equal(t, "long: has only 2500 lines", b.no(t, alice, "read_file", args{"path": "long", "offset": 9999}))
}

func TestReadFile_StaysWithinTheOutputLimit(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *config.Toolexec) { c.OutputBytes = 1024 })
	b.put(t, alice, "wide", strings.Repeat("x", 5000)+"\nshort\n")
	b.put(t, alice, "long", strings.Repeat("0123456789\n", 500))
	require.Equal(t, strings.Repeat("x", 448)+" [line of 5001 bytes cut]\nshort\n",
		b.ok(t, alice, "read_file", args{"path": "wide"}))
	res := b.call(t, alice, "read_file", args{"path": "long"})
	require.LessOrEqual(t, len(res.GetContent()), 1024)
	require.False(t, res.GetTruncated())
	require.Contains(t, res.GetContent(), "[more lines follow, read on with offset 82]\n")
}

func TestReadFile_SaysWhatIsNotText(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.put(t, alice, "image", "\x89PNG\x00\x00")
	b.put(t, alice, "empty", "")
	b.put(t, alice, "latin1", "caf\xe9")
	b.ok(t, alice, "terminal", args{"command": "mkfifo pipe; mkdir folder"})
	require.Equal(t, "image is a binary file of 6 bytes", b.no(t, alice, "read_file", args{"path": "image"}))
	require.Equal(t, "[empty is empty]\n", b.ok(t, alice, "read_file", args{"path": "empty"}))
	require.Equal(t, "caf?", b.ok(t, alice, "read_file", args{"path": "latin1"}))
	require.Equal(t, "pipe: is a pipe, not a file", b.no(t, alice, "read_file", args{"path": "pipe"}))
	require.Equal(t, "folder: is a folder, not a file", b.no(t, alice, "read_file", args{"path": "folder"}))
	require.Equal(t, "folder: is a folder, not a file", b.no(t, alice, "write_file", args{"path": "folder", "content": ""}))
}

func TestListFiles_ShowsKindsAndSizes(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.put(t, alice, "b.txt", "12345")
	b.put(t, alice, "a/deep/f", "1")
	b.put(t, alice, ".git/config", "x")
	b.put(t, alice, ".tmp/junk", "x")
	require.NoError(t, os.Symlink("b.txt", filepath.Join(b.workspace(alice), "link")))
	require.Equal(t, ".git/\na/\nb.txt (5 bytes)\nlink -> b.txt\n", b.ok(t, alice, "list_files", nil))
	require.Equal(t, ".git/\na/\na/deep/\na/deep/f (1 bytes)\nb.txt (5 bytes)\nlink -> b.txt\n",
		b.ok(t, alice, "list_files", args{"recursive": true}))
	require.Equal(t, "a/deep/f (1 bytes)\n", b.ok(t, alice, "list_files", args{"path": "a/deep"}))
	require.Equal(t, "b.txt (5 bytes)\n", b.ok(t, alice, "list_files", args{"path": "b.txt"}))
	require.Equal(t, "nope does not exist", b.no(t, alice, "list_files", args{"path": "nope"}))
}

func TestListFiles_IsBounded(t *testing.T) {
	t.Parallel()
	b := start(t)
	for i := range 1001 {
		b.put(t, alice, fmt.Sprintf("%04d", i), "")
	}
	list := b.ok(t, alice, "list_files", nil)
	require.Equal(t, 1001, strings.Count(list, "\n"))
	require.True(t, strings.HasSuffix(list, "0999 (0 bytes)\n[cut after 1000 entries: list a folder inside]\n"))
}

func TestSearchFiles_FindsLines(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.put(t, alice, "src/a.go", "package a\n\nfunc A() {}\n")
	b.put(t, alice, "src/b.go", "package b\r\nfunc B(x int) {}\r\n")
	b.put(t, alice, "bin", "func\x00")
	b.put(t, alice, ".git/x", "func")
	require.Equal(t, "src/a.go:3: func A() {}\nsrc/b.go:2: func B(x int) {}\n",
		b.ok(t, alice, "search_files", args{"pattern": `func [A-Z]\(`}))
	require.Equal(t, "src/a.go:3: func A() {}\n", b.ok(t, alice, "search_files", args{"pattern": "A()", "literal": true}))
	require.Equal(t, "src/b.go:2: func B(x int) {}\n",
		b.ok(t, alice, "search_files", args{"pattern": "FUNC b", "ignore_case": true, "path": "src"}))
	require.Equal(t, "src/a.go:1: package a\n", b.ok(t, alice, "search_files", args{"pattern": "^package", "path": "src/a.go"}))
	require.Equal(t, "[no line in 2 files matches]\n", b.ok(t, alice, "search_files", args{"pattern": `A\(x`}))
	require.Contains(t, b.no(t, alice, "search_files", args{"pattern": "("}), "argument pattern: error parsing regexp")
	require.Equal(t, "argument pattern: must not be empty", b.no(t, alice, "search_files", nil))
}

func TestSearchFiles_IsBounded(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.put(t, alice, "many", strings.Repeat("hit\n", 300)+strings.Repeat("x", 1000)+"hit\n")
	found := b.ok(t, alice, "search_files", args{"pattern": "hit"})
	require.Equal(t, 201, strings.Count(found, "\n"))
	require.True(t, strings.HasSuffix(found, "many:200: hit\n[cut after 200 lines: search for something rarer]\n"))
	require.Equal(t, "many:301: "+strings.Repeat("x", 300)+" [line of 1003 bytes cut]\n",
		b.ok(t, alice, "search_files", args{"pattern": "xhit"}))
}

func TestFiles_UnknownArgumentIsNamed(t *testing.T) {
	t.Parallel()
	b := start(t)
	require.Equal(t, `arguments: unknown field "file"`, b.no(t, alice, "read_file", args{"file": "x"}))
	require.Equal(t, "argument offset: string is not a number", b.no(t, alice, "read_file", args{"path": "x", "offset": "2"}))
	require.Equal(t, "argument content: is missing", b.no(t, alice, "write_file", args{"path": "x"}))
}
