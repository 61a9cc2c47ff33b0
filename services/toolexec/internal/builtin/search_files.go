package builtin

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"

	"github.com/hermes-runtime/hermes/services/toolexec/internal/sandbox"
)

const (
	maxMatches = 200
	// shownBytes of a matching line are shown, matchBytes of a line are looked at.
	shownBytes = 300
	matchBytes = 64 << 10
)

type searchArguments struct {
	Pattern    string `json:"pattern"`
	Literal    bool   `json:"literal"`
	IgnoreCase bool   `json:"ignore_case"`
	Path       string `json:"path"`
}

func (a searchArguments) compile() (*regexp.Regexp, error) {
	if a.Pattern == "" {
		return nil, errors.New("argument pattern: must not be empty")
	}
	expr := a.Pattern
	if a.Literal {
		expr = regexp.QuoteMeta(expr)
	}
	if a.IgnoreCase {
		expr = "(?i)" + expr
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, fmt.Errorf("argument pattern: %w", err)
	}
	return re, nil
}

func searchFiles(root *os.Root, call sandbox.OperationCall, out io.Writer) ([]string, error) {
	var args searchArguments
	if err := decode(call.Arguments, &args); err != nil {
		return nil, err
	}
	re, err := args.compile()
	if err != nil {
		return nil, err
	}
	path, err := pathOrRoot(args.Path)
	if err != nil {
		return nil, err
	}
	s := &search{root: root, re: re, out: out, budget: call.OutputBytes - footerBytes}
	if err := walk(root, path, s.visit); err != nil {
		return nil, err
	}
	if s.matches == 0 {
		_, err = fmt.Fprintf(out, "[no line in %d files matches]\n", s.files)
	}
	return nil, err
}

type search struct {
	root    *os.Root
	re      *regexp.Regexp
	out     io.Writer
	files   int
	matches int
	budget  int
}

// visit skips what cannot be opened: it is gone, or closed to us.
func (s *search) visit(name string, d fs.DirEntry, _ error) error {
	if !d.Type().IsRegular() {
		return nil
	}
	f, _, err := openRegular(s.root, name)
	if err != nil {
		return nil
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, sniffBytes)
	if binary, err := isBinary(r); err != nil || binary {
		return nil
	}
	s.files++
	return s.lines(name, r)
}

func (s *search) lines(name string, r *bufio.Reader) error {
	for n := 1; ; n++ {
		line, _, err := readLine(r, matchBytes)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return about(name, err)
		}
		line = bytes.TrimRight(line, "\r\n")
		if !s.re.Match(line) {
			continue
		}
		if err := s.found(name, n, line); err != nil {
			return err
		}
	}
}

func (s *search) found(name string, n int, line []byte) error {
	text := fmt.Appendf(nil, "%s:%d: %s", name, n, line[:min(len(line), shownBytes)])
	if len(line) > shownBytes {
		text = fmt.Appendf(text, " [line of %d bytes cut]", len(line))
	}
	text = append(text, '\n')
	s.budget -= len(text)
	if s.matches == maxMatches || s.budget < 0 {
		if _, err := fmt.Fprintf(s.out, "[cut after %d lines: search for something rarer]\n", s.matches); err != nil {
			return err
		}
		return fs.SkipAll
	}
	s.matches++
	_, err := s.out.Write(text)
	return err
}
