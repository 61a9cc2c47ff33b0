package builtin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hermes-runtime/hermes/services/toolexec/internal/sandbox"
)

const (
	maxLines = 2000
	// maxLineBytes is how much of one line is shown.
	maxLineBytes = 4000
	// footerBytes are kept free for what read_file adds to the file's text.
	footerBytes = 128
)

type readArguments struct {
	Path   string `json:"path"`
	Offset int    `json:"offset"`
	Limit  int    `json:"limit"`
}

func readFile(root *os.Root, call sandbox.OperationCall, out io.Writer) ([]string, error) {
	args := readArguments{Offset: 1, Limit: maxLines}
	if err := decode(call.Arguments, &args); err != nil {
		return nil, err
	}
	if args.Offset < 1 || args.Limit < 1 {
		return nil, errors.New("arguments offset and limit: must be at least 1")
	}
	path, err := relative(args.Path)
	if err != nil {
		return nil, err
	}
	f, info, err := openRegular(root, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &page{r: bufio.NewReaderSize(f, sniffBytes), out: out, budget: call.OutputBytes - footerBytes}
	binary, err := isBinary(p.r)
	switch {
	case err != nil:
		return nil, about(path, err)
	case binary:
		return nil, fmt.Errorf("%s is a binary file of %d bytes", path, info.Size())
	case info.Size() == 0:
		_, err = fmt.Fprintf(out, "[%s is empty]\n", path)
		return nil, err
	}
	if err := p.copy(args.Offset, min(args.Limit, maxLines)); err != nil {
		return nil, about(path, err)
	}
	return nil, nil
}

// page is a part of a text file.
type page struct {
	r      *bufio.Reader
	out    io.Writer
	budget int
}

func (p *page) copy(offset, limit int) error {
	for n := 1; n < offset; n++ {
		if _, _, err := readLine(p.r, 0); err != nil {
			return fmt.Errorf("has only %d lines", n-1)
		}
	}
	widest := max(0, min(maxLineBytes, p.budget/2))
	for n := offset; ; n++ {
		line, size, err := readLine(p.r, widest)
		if errors.Is(err, io.EOF) {
			if n == offset {
				return fmt.Errorf("has only %d lines", n-1)
			}
			return nil
		}
		if err != nil {
			return err
		}
		if size > len(line) {
			line = fmt.Appendf(line, " [line of %d bytes cut]\n", size)
		}
		p.budget -= len(line)
		if n == offset+limit || p.budget < 0 {
			_, err := fmt.Fprintf(p.out, "[more lines follow, read on with offset %d]\n", n)
			return err
		}
		if _, err := p.out.Write(line); err != nil {
			return err
		}
	}
}

// readLine returns at most keep bytes of the next line with its end, and the size of the whole line. It is io.EOF only
// when nothing is left.
func readLine(r *bufio.Reader, keep int) (line []byte, size int, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part[:min(len(part), keep-len(line))]...)
		size += len(part)
		switch {
		case err == nil:
			return line, size, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && size > 0:
			return line, size, nil
		default:
			return nil, 0, err
		}
	}
}
