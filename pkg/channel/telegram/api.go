package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	dialTimeout = 10 * time.Second
	// maxAnswer bounds an answer: a full batch of updates stays far below it.
	maxAnswer = 16 << 20
	// pollMargin is how long after the end of a long poll its answer may still come.
	pollMargin = 15 * time.Second
	// maxUpdates is the largest batch that Telegram gives out.
	maxUpdates = 100
)

// API calls the Bot API for one bot. Its errors never hold the token.
type API struct {
	id     string
	token  string
	base   string
	client *http.Client
}

// tokenForm is what BotFather gives out. Anything else could leave the path of the URL.
var tokenForm = regexp.MustCompile(`^([0-9]+):[A-Za-z0-9_-]+$`)

// NewAPI returns the client of the bot that token belongs to. baseURL is the server, https://api.telegram.org or one's
// own. hc must not follow redirects nor have a timeout below that of a long poll; see [NewClient].
func NewAPI(token, baseURL string, hc *http.Client) (*API, error) {
	id, err := botID(token)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("telegram: the server is no http or https URL")
	}
	if hc == nil {
		return nil, errors.New("telegram: no HTTP client")
	}
	return &API{id: id, token: token, base: strings.TrimSuffix(baseURL, "/"), client: hc}, nil
}

func botID(token string) (string, error) {
	m := tokenForm.FindStringSubmatch(token)
	if m == nil {
		return "", errors.New("telegram: the token does not have the form <bot id>:<key>")
	}
	return m[1], nil
}

// NewClient returns an HTTP client for [NewAPI]. Deadlines are those of the calls' contexts. Owners end its idle
// connections with CloseIdleConnections.
func NewClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout: dialTimeout,
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     60 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// APIError is a refusal: the server answered, and did not do what was asked.
type APIError struct {
	// Code is the error code, as a rule the HTTP status.
	Code        int
	Description string
	// RetryAfter is how long the server wants to be left alone, 0 if it does not say.
	RetryAfter time.Duration
	// MigrateTo is the new id of a group that became a supergroup.
	MigrateTo string
}

func (e *APIError) Error() string { return fmt.Sprintf("telegram: %d: %s", e.Code, e.Description) }

// CallError is a call without an answer.
type CallError struct {
	Method string
	// Reached: there was a connection, so that the server may have read the request and done what it asks.
	Reached bool
	Err     error
}

func (e *CallError) Error() string { return "telegram " + e.Method + ": " + e.Err.Error() }

func (e *CallError) Unwrap() error { return e.Err }

// ID is the id of the bot.
func (a *API) ID() string { return a.id }

// GetMe returns the bot. Its group policy is left for the caller.
func (a *API) GetMe(ctx context.Context) (Bot, error) {
	var me user
	if err := a.call(ctx, "getMe", struct{}{}, &me); err != nil {
		return Bot{}, err
	}
	if me.id() != a.id { // answers go out by the id in the token: they would find no bot
		return Bot{}, fmt.Errorf("telegram: the token belongs to bot %s, the server says %s", a.id, me.id())
	}
	return Bot{ID: a.id, Username: me.Username}, nil
}

// GetUpdates waits up to timeout for updates from offset on and returns them as they came. It confirms every update
// below offset: those must be stored by then.
func (a *API) GetUpdates(ctx context.Context, offset int64, timeout time.Duration) ([]json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+pollMargin)
	defer cancel()
	var updates []json.RawMessage
	err := a.call(ctx, "getUpdates", map[string]any{
		"offset": offset, "limit": maxUpdates, "timeout": int(timeout / time.Second), "allowed_updates": allowedUpdates(),
	}, &updates)
	return updates, err
}

// SetWebhook has updates posted to webhookURL, with secret in the header [HeaderSecret].
func (a *API) SetWebhook(ctx context.Context, webhookURL, secret string) error {
	return a.call(ctx, "setWebhook", map[string]any{
		"url": webhookURL, "secret_token": secret, "allowed_updates": allowedUpdates(),
	}, nil)
}

// DeleteWebhook ends the delivery by webhook, so that updates can be polled. Updates that wait are kept.
func (a *API) DeleteWebhook(ctx context.Context) error {
	return a.call(ctx, "deleteWebhook", map[string]any{"drop_pending_updates": false}, nil)
}

// AnswerCallback ends the waiting sign on a pressed button; a text, up to 200 characters, is shown to the person.
func (a *API) AnswerCallback(ctx context.Context, id, text string) error {
	params := map[string]any{"callback_query_id": id}
	if text != "" {
		params["text"] = text
	}
	return a.call(ctx, "answerCallbackQuery", params, nil)
}

// answer is the envelope of every answer.
type answer struct {
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result"`
	ErrorCode   int             `json:"error_code"`
	Description string          `json:"description"`
	Parameters  struct {
		RetryAfter int         `json:"retry_after"`
		MigrateTo  json.Number `json:"migrate_to_chat_id"`
	} `json:"parameters"`
}

// call posts params to method and reads the result into result, nil = not wanted. Errors: *APIError or *CallError.
func (a *API) call(ctx context.Context, method string, params, result any) error {
	var reached atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { reached.Store(true) },
	})
	ans, status, err := a.post(ctx, method, params)
	if err != nil {
		return &CallError{Method: method, Reached: reached.Load(), Err: a.redact(err)}
	}
	if !ans.OK {
		return a.refusal(ans, status)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(ans.Result, result); err != nil {
		return &CallError{Method: method, Reached: true, Err: fmt.Errorf("read result: %w", err)}
	}
	return nil
}

// post returns what the server answered. An answer that is not in the form of the Bot API, as gateways give it, is read
// as a refusal with the HTTP status, unless the status is a success: then nobody knows.
func (a *API) post(ctx context.Context, method string, params any) (ans answer, status int, err error) {
	body, err := json.Marshal(params)
	if err != nil {
		return answer{}, 0, fmt.Errorf("encode: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+"/bot"+a.token+"/"+method, bytes.NewReader(body))
	if err != nil {
		return answer{}, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return answer{}, 0, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil {
		err = json.Unmarshal(raw, &ans)
	}
	success := resp.StatusCode >= 200 && resp.StatusCode < 300
	switch {
	case err != nil && success:
		return answer{}, 0, fmt.Errorf("read answer: %w", err)
	case err != nil, ans.OK && !success:
		return answer{}, resp.StatusCode, nil
	default:
		return ans, resp.StatusCode, nil
	}
}

func (a *API) refusal(ans answer, status int) *APIError {
	e := &APIError{
		Code: ans.ErrorCode, Description: a.hide(ans.Description), MigrateTo: ans.Parameters.MigrateTo.String(),
		RetryAfter: time.Duration(ans.Parameters.RetryAfter) * time.Second,
	}
	if e.Code == 0 {
		e.Code = status
	}
	if e.Description == "" {
		e.Description = http.StatusText(e.Code)
	}
	return e
}

// redact takes the URL out of an error: the token is part of its path.
func (a *API) redact(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if strings.Contains(err.Error(), a.token) {
		return errors.New(a.hide(err.Error()))
	}
	return err
}

func (a *API) hide(text string) string { return strings.ReplaceAll(text, a.token, "<token>") }

// numeric is an id as a number where it is one, which every server takes.
func numeric(id string) any {
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		return n
	}
	return id
}
