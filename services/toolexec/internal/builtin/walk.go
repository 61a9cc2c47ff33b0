package builtin

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hermes-runtime/hermes/services/toolexec/internal/sandbox"
)

// walk visits what is beneath path in lexical order, the folder itself and the temporary folder left out, and stays out
// of .git. Links are visited, not followed.
func walk(root *os.Root, path string, visit fs.WalkDirFunc) error {
	return fs.WalkDir(root.FS(), filepath.ToSlash(path), func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && name == path:
			return about(path, err)
		case err != nil:
			return nil // gone, or closed to us, since its folder was read
		case name == sandbox.TempDir && name != path:
			return fs.SkipDir
		case name == path && d.IsDir():
			return nil
		}
		if err := visit(name, d, nil); err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		return nil
	})
}

// pathOrRoot checks an optional path argument.
func pathOrRoot(path string) (string, error) {
	if path == "" {
		return ".", nil
	}
	return relative(path)
}
