package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hermes-runtime/hermes/pkg/tool"
)

const (
	httpConcurrency = 64
	httpTimeout     = 5 * time.Second
	maxRedirects    = 5
	// maxResponseBytes are read of a body; the observation is cut further.
	maxResponseBytes = 8 << 20
	userAgent        = "hermes-toolexec"
)

func httpRequestTool(web Web) Tool {
	return Tool{
		Spec: tool.Spec{
			Name: "http_request",
			Description: "Send one HTTP request and return status, headers and body. Only hosts that the operator allowed can be " +
				"reached; others are answered with \"blocked by allow_list\", which trying again does not change. The answer must " +
				"come within 5 seconds.",
			Parameters: json.RawMessage(`{
				"type": "object",
				"properties": {
					"url": {"type": "string", "minLength": 1, "description": "http or https URL."},
					"method": {"type": "string", "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
						"description": "Default GET."},
					"headers": {"type": "object", "additionalProperties": {"type": "string"}},
					"body": {"type": "string", "description": "Request body, as it is sent."}
				},
				"required": ["url"],
				"additionalProperties": false
			}`),
			Effect: tool.Unsafe, // the method is chosen by the model
		},
		Concurrency: httpConcurrency,
		Run:         web.run,
	}
}

type httpArguments struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// request checks the arguments. Headers that shape the connection are not the model's to set.
func (a httpArguments) request(ctx context.Context) (*http.Request, error) {
	method := strings.ToUpper(a.Method)
	if method == "" {
		method = http.MethodGet
	}
	if !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}, method) {
		return nil, fmt.Errorf("argument method: %q is not GET, HEAD, POST, PUT, PATCH or DELETE", a.Method)
	}
	if err := checkURL(a.URL); err != nil {
		return nil, fmt.Errorf("argument url: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.URL, strings.NewReader(a.Body))
	if err != nil {
		return nil, fmt.Errorf("argument url: %w", err)
	}
	req.Header.Set("User-Agent", userAgent)
	for name, value := range a.Headers {
		switch http.CanonicalHeaderKey(name) {
		case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Trailer":
			return nil, fmt.Errorf("argument headers: %s cannot be set", name)
		}
		req.Header.Set(name, value)
	}
	return req, nil
}

func checkURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return err
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("scheme %q is not http or https", u.Scheme)
	case u.Hostname() == "":
		return errors.New("has no host")
	case u.User != nil:
		return errors.New("holds a user name, use a header")
	}
	return nil
}

func (w Web) run(ctx context.Context, call Call) (Result, error) {
	var args httpArguments
	if err := decode(call.Arguments, &args); err != nil {
		return result(tool.Error, err.Error()), nil
	}
	limited, cancel := context.WithTimeout(ctx, httpTimeout)
	defer cancel()
	req, err := args.request(limited)
	if err != nil {
		return result(tool.Error, err.Error()), nil
	}
	r, err := w.fetch(req, call.OutputBytes)
	if err == nil {
		return r, nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return Result{}, context.Cause(ctx)
	}
	return failed(req, err), nil
}

func failed(req *http.Request, err error) Result {
	if blocked, ok := errors.AsType[*BlockedError](err); ok {
		return result(tool.Denied, blocked.Error())
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return resultf(tool.Timeout, "%s did not answer in time", req.URL.Host)
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	return resultf(tool.Error, "request to %s: %v", req.URL.Host, err)
}

func (w Web) fetch(req *http.Request, limit int) (Result, error) {
	resp, err := w.client().Do(req)
	if err != nil {
		return Result{}, err
	}
	defer resp.Body.Close()
	out := NewOutput(limit)
	writeHead(out, resp)
	body := &bytes.Buffer{}
	n, err := body.ReadFrom(io.LimitReader(resp.Body, maxResponseBytes))
	if err != nil {
		return Result{}, fmt.Errorf("read the answer: %w", err)
	}
	footer := ""
	if n == maxResponseBytes {
		footer = fmt.Sprintf("[read only the first %d bytes]", n)
	}
	writeBody(out, resp, body.Bytes())
	if resp.StatusCode >= http.StatusBadRequest {
		return out.Result(tool.Error, footer), nil
	}
	return out.Result(tool.OK, footer), nil
}

// writeHead shows the final URL after redirects, the status, and the headers sorted. An Output never fails.
func writeHead(out io.Writer, resp *http.Response) {
	_, _ = fmt.Fprintf(out, "%s %s\n%s %s\n", resp.Request.Method, resp.Request.URL, resp.Proto, resp.Status)
	_ = resp.Header.Write(out)
	_, _ = fmt.Fprintln(out)
}

// writeBody shows text as it is. An Output never fails.
func writeBody(out io.Writer, resp *http.Response, body []byte) {
	if bytes.IndexByte(body, 0) >= 0 || !utf8.Valid(body) && !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/") {
		_, _ = fmt.Fprintf(out, "[binary body of %d bytes]\n", len(body))
		return
	}
	_, _ = out.Write(body)
}
