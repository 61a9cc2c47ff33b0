package webhook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/config"
)

// Poster sends signed bodies to URLs that people have configured. It follows no redirect, uses no proxy, and reaches
// addresses inside only where that is allowed. Safe for concurrent use.
type Poster struct {
	// Addresses inside are only reached through the second client.
	public, private *http.Client
	now             func() time.Time
}

// Post is one body for one URL.
type Post struct {
	URL          string
	Secret       config.Secret
	AllowPrivate bool
	// ID is the webhook-id, the same for every try: receivers drop what they have seen.
	ID string
	// Body is JSON.
	Body []byte
}

const (
	dialTimeout = 10 * time.Second
	maxAnswer   = 64 << 10
)

// NewPoster returns a poster; Close it.
func NewPoster() *Poster {
	return &Poster{
		public:  client(&net.Dialer{Timeout: dialTimeout, Control: publicOnly}),
		private: client(&net.Dialer{Timeout: dialTimeout}),
		now:     time.Now,
	}
}

func client(d *net.Dialer) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			// No proxy: it would be dialed instead of the receiver, and its address checked instead.
			DialContext:            d.DialContext,
			TLSHandshakeTimeout:    dialTimeout,
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    16,
			IdleConnTimeout:        60 * time.Second,
			MaxResponseHeaderBytes: maxAnswer,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close ends idle connections.
func (p *Poster) Close() {
	p.public.CloseIdleConnections()
	p.private.CloseIdleConnections()
}

// CheckSecret reports whether a secret can be read and used to sign.
func CheckSecret(secret config.Secret) error {
	_, err := readKeys([]config.Secret{secret})
	return err
}

// Post sends once; 2xx is success. Errors are *channel.SendError or the context's, without the URL: it may hold a
// credential.
func (p *Poster) Post(ctx context.Context, post Post) error {
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	req, err := p.request(ctx, post)
	if err != nil {
		return err
	}
	resp, err := p.client(post).Do(req)
	if err != nil {
		return classifyError(err, connected.Load())
	}
	defer resp.Body.Close()
	// Only so that the connection can be used again: the status has said it all.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	return classifyStatus(resp, p.now())
}

// request is signed anew for every try: receivers refuse old times.
func (p *Poster) request(ctx context.Context, post Post) (*http.Request, error) {
	keys, err := readKeys([]config.Secret{post.Secret})
	if err != nil {
		return nil, failed(channel.Credential, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, post.URL, bytes.NewReader(post.Body))
	if err != nil {
		return nil, failed(channel.Permanent, errors.New("the URL of the receiver is none")) // without the URL
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "hermes-webhook/1")
	keys[0].SetHeaders(req.Header, post.ID, p.now(), post.Body)
	return req, nil
}

func (p *Poster) client(post Post) *http.Client {
	if post.AllowPrivate {
		return p.private
	}
	return p.public
}

func failed(class channel.Class, err error) *channel.SendError {
	return &channel.SendError{Class: class, Err: err}
}

// classifyError tells a receiver that was never reached from one that may have read the message.
func classifyError(err error, connected bool) *channel.SendError {
	// The URL of a url.Error may hold a credential.
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	switch {
	case errors.Is(err, errPrivate):
		return failed(channel.Permanent, errPrivate)
	case connected:
		return failed(channel.Unknown, err)
	default:
		return failed(channel.NotSent, err)
	}
}
