package process

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hermes-runtime/hermes/services/internal/backends"
)

const readyTimeout = 3 * time.Second

// askReady asks /readyz of the process that has adminAddr on this machine: a health check for images without a shell.
func askReady(ctx context.Context, adminAddr string) error {
	_, port, err := net.SplitHostPort(adminAddr)
	if err != nil {
		return fmt.Errorf("admin_addr: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", port)+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("admin_addr: %w", err)
	}
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", backends.ErrUnreachable, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("read /readyz: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", strings.TrimSpace(string(body)))
	}
	return nil
}
