package builtin

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hermes-runtime/hermes/services/toolexec/internal/sandbox"
)

type writeArguments struct {
	Path    string  `json:"path"`
	Content *string `json:"content"`
}

func writeFile(root *os.Root, call sandbox.OperationCall, out io.Writer) ([]string, error) {
	var args writeArguments
	if err := decode(call.Arguments, &args); err != nil {
		return nil, err
	}
	path, err := relative(args.Path)
	if err != nil {
		return nil, err
	}
	if args.Content == nil {
		return nil, errors.New("argument content: is missing")
	}
	mode, err := modeOf(root, path)
	if err != nil {
		return nil, err
	}
	if err := replaceFile(root, path, *args.Content, mode); err != nil {
		return nil, about(path, err)
	}
	_, err = fmt.Fprintf(out, "wrote %d bytes to %s\n", len(*args.Content), path)
	return []string{path}, err
}

// modeOf returns the permissions of the file that will be replaced, so that a script stays executable.
func modeOf(root *os.Root, path string) (fs.FileMode, error) {
	info, err := root.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0o600, nil
	case err != nil:
		return 0, about(path, err)
	case !info.Mode().IsRegular():
		return 0, fmt.Errorf("%s: is a %s, not a file", path, kind(info.Mode()))
	default:
		return info.Mode().Perm(), nil
	}
}

// replaceFile writes beside the file and renames: a reader, or a crash, never sees half of it.
func replaceFile(root *os.Root, path, content string, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	if err := root.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp := filepath.Join(dir, ".write-"+rand.Text())
	err := writeNew(root, tmp, content, mode)
	if err == nil {
		err = root.Rename(tmp, path)
	}
	if err != nil {
		_ = root.Remove(tmp) // the first error says why
	}
	return err
}

func writeNew(root *os.Root, path, content string, mode fs.FileMode) error {
	f, err := root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
