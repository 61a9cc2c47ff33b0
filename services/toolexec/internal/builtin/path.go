package builtin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// relative checks a path argument and returns it clean. Links are left to os.Root, which follows none to the outside.
func relative(path string) (string, error) {
	path = strings.TrimSpace(path)
	switch {
	case path == "":
		return "", errors.New("argument path: must not be empty")
	case strings.ContainsRune(path, 0):
		return "", errors.New("argument path: holds a NUL byte")
	case filepath.IsAbs(path):
		return "", fmt.Errorf("argument path: %s is absolute, paths are relative to the workspace", path)
	case !filepath.IsLocal(path):
		return "", fmt.Errorf("argument path: %s leaves the workspace", path)
	}
	return filepath.Clean(path), nil
}

// about says what went wrong with a path, without the path of the workspace.
func about(path string, err error) error {
	var inner *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: access is not allowed", path)
	case errors.As(err, &inner):
		return fmt.Errorf("%s: %w", path, inner.Err)
	default:
		return fmt.Errorf("%s: %w", path, err)
	}
}

// openRegular opens a file for reading and refuses folders, pipes and devices. Without O_NONBLOCK a pipe would wait for
// a writer.
func openRegular(root *os.Root, path string) (*os.File, fs.FileInfo, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, about(path, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("is a %s, not a file", kind(info.Mode()))
	}
	if err != nil {
		return nil, nil, about(path, errors.Join(err, f.Close()))
	}
	return f, info, nil
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "folder"
	case m&fs.ModeNamedPipe != 0:
		return "pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	default:
		return "device"
	}
}

// sniffBytes is how much of a file decides whether it is text.
const sniffBytes = 8 << 10

// peeker is a buffered reader.
type peeker interface {
	Peek(n int) ([]byte, error)
}

// isBinary looks for a NUL byte at the beginning.
func isBinary(r peeker) (bool, error) {
	start, err := r.Peek(sniffBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return bytes.IndexByte(start, 0) >= 0, nil
}
