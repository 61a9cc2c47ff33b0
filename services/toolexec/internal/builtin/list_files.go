package builtin

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/hermes-runtime/hermes/services/toolexec/internal/sandbox"
)

const maxEntries = 1000

type listArguments struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive"`
}

func listFiles(root *os.Root, call sandbox.OperationCall, out io.Writer) ([]string, error) {
	var args listArguments
	if err := decode(call.Arguments, &args); err != nil {
		return nil, err
	}
	path, err := pathOrRoot(args.Path)
	if err != nil {
		return nil, err
	}
	l := &listing{root: root, out: out, recursive: args.Recursive, budget: call.OutputBytes - footerBytes}
	if err := walk(root, path, l.visit); err != nil {
		return nil, err
	}
	if l.count == 0 {
		if path == "." {
			path = "the workspace"
		}
		_, err = fmt.Fprintf(out, "[%s is empty]\n", path)
	}
	return nil, err
}

type listing struct {
	root      *os.Root
	out       io.Writer
	recursive bool
	count     int
	budget    int
}

func (l *listing) visit(name string, d fs.DirEntry, _ error) error {
	line := l.describe(name, d) + "\n"
	l.budget -= len(line)
	if l.count == maxEntries || l.budget < 0 {
		if _, err := fmt.Fprintf(l.out, "[cut after %d entries: list a folder inside]\n", l.count); err != nil {
			return err
		}
		return fs.SkipAll
	}
	l.count++
	if _, err := io.WriteString(l.out, line); err != nil {
		return err
	}
	if d.IsDir() && !l.recursive {
		return fs.SkipDir
	}
	return nil
}

func (l *listing) describe(name string, d fs.DirEntry) string {
	if d.IsDir() {
		return name + "/"
	}
	if d.Type()&fs.ModeSymlink != 0 {
		target, err := l.root.Readlink(name)
		if err != nil {
			return name + " -> ?"
		}
		return name + " -> " + target
	}
	info, err := d.Info()
	if err != nil {
		return name // gone since its folder was read
	}
	if !info.Mode().IsRegular() {
		return fmt.Sprintf("%s (%s)", name, kind(info.Mode()))
	}
	return fmt.Sprintf("%s (%d bytes)", name, info.Size())
}
