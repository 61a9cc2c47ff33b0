package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// call is one request of a method. Arguments are strings as in a form: what is no string is JSON.
type call struct {
	name    string
	args    map[string]string
	uploads map[string]upload
	at      time.Time
}

type upload struct {
	name string
	data []byte
}

// apiError is a refusal.
type apiError struct {
	code       int
	text       string
	retryAfter int
	migrateTo  int64
}

func badRequest(format string, args ...any) *apiError {
	return &apiError{code: http.StatusBadRequest, text: "Bad Request: " + fmt.Sprintf(format, args...)}
}

// method answers a call; it runs under the lock of the server.
type method func(s *Server, c *call) (result any, err *apiError)

// methods lists everything but getUpdates, which waits. Names are compared without case, as the hosted server does.
func methods() map[string]method {
	return map[string]method{
		"getme": (*Server).getMe, "sendmessage": (*Server).sendMessage, "editmessagetext": (*Server).editMessageText,
		"editmessagereplymarkup": (*Server).editMessageReplyMarkup, "deletemessage": (*Server).deleteMessage,
		"sendmessagedraft": (*Server).sendMessageDraft, "sendchataction": (*Server).sendChatAction,
		"sendphoto": (*Server).sendPhoto, "senddocument": (*Server).sendDocument, "getfile": (*Server).getFile,
		"answercallbackquery": (*Server).answerCallbackQuery, "setwebhook": (*Server).setWebhook,
		"deletewebhook": (*Server).deleteWebhook, "getwebhookinfo": (*Server).getWebhookInfo,
		"setmycommands": func(*Server, *call) (any, *apiError) { return true, nil },
	}
}

// maxRequest is that of the hosted server for uploads.
const maxRequest = 50 << 20

func (s *Server) call(w http.ResponseWriter, r *http.Request, name string) {
	c, err := decode(w, r, name)
	if err != nil {
		writeError(w, badRequest("%v", err))
		return
	}
	a := s.note(c)
	if !s.wait(r.Context(), a.Until) {
		return // the caller went away
	}
	var result any
	var refused *apiError
	if a.Keep || a.passes() {
		result, refused = s.answer(r.Context(), c)
	}
	switch {
	case a.Hang:
		s.wait(r.Context(), nil)
	case a.Reset:
		panic(http.ErrAbortHandler) // cuts the connection without a log line
	case a.Raw != "":
		w.WriteHeader(a.Code)
		_, _ = io.WriteString(w, a.Raw) // the caller hung up: nobody to tell
	case a.Code != 0:
		writeError(w, a.refusal())
	case refused != nil:
		writeError(w, refused)
	default:
		writeJSON(w, http.StatusOK, map[string]any{"ok": true, "result": result})
	}
}

// wait returns when until is closed: never if it is nil. A zero Answer does not wait; see Answer.Until.
func (s *Server) wait(ctx context.Context, until <-chan struct{}) bool {
	select {
	case <-until:
		return true
	case <-ctx.Done():
		return false
	case <-s.life.Done():
		return false
	}
}

func (s *Server) answer(ctx context.Context, c *call) (any, *apiError) {
	name := strings.ToLower(c.name)
	if name == "getupdates" {
		return s.getUpdates(ctx, c)
	}
	m, ok := s.methods[name]
	if !ok {
		return nil, &apiError{code: http.StatusNotFound, text: "Not Found: method not found"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkChat(c); err != nil {
		return nil, err
	}
	return m(s, c)
}

// decode reads the arguments, whichever way they were sent.
func decode(w http.ResponseWriter, r *http.Request, name string) (*call, error) {
	c := &call{name: name, args: map[string]string{}, uploads: map[string]upload{}, at: time.Now()}
	r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // none at all is a call without arguments
	switch kind {
	case "application/json":
		return c, c.decodeJSON(r.Body)
	case "multipart/form-data":
		if err := r.ParseMultipartForm(maxRequest); err != nil {
			return nil, fmt.Errorf("can't parse multipart: %w", err)
		}
		if err := c.readUploads(r); err != nil {
			return nil, err
		}
	default:
		if err := r.ParseForm(); err != nil {
			return nil, fmt.Errorf("can't parse form: %w", err)
		}
	}
	for k, v := range r.Form {
		c.args[k] = v[0]
	}
	return c, nil
}

func (c *call) decodeJSON(body io.Reader) error {
	var fields map[string]json.RawMessage
	if err := json.NewDecoder(body).Decode(&fields); err != nil && !errors.Is(err, io.EOF) {
		return errors.New("can't parse JSON object")
	}
	for k, raw := range fields {
		var text string
		if json.Unmarshal(raw, &text) == nil {
			c.args[k] = text
			continue
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return errors.New("can't parse JSON object")
		}
		c.args[k] = compact.String()
	}
	return nil
}

func (c *call) readUploads(r *http.Request) error {
	for field, headers := range r.MultipartForm.File {
		f, err := headers[0].Open()
		if err != nil {
			return fmt.Errorf("can't read file: %w", err)
		}
		data, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("can't read file: %w", err)
		}
		c.uploads[field] = upload{name: headers[0].Filename, data: data}
	}
	return nil
}

// number reads an integer argument; 0 if it is missing or none.
func (c *call) number(name string) int64 {
	n, _ := strconv.ParseInt(c.args[name], 10, 64) // the server, too, reads what it cannot understand as 0
	return n
}

// object reads a JSON argument into v, which stays as it is if there is none.
func (c *call) object(name string, v any) *apiError {
	if c.args[name] == "" || json.Unmarshal([]byte(c.args[name]), v) == nil {
		return nil
	}
	return badRequest("can't parse %s JSON object", strings.ReplaceAll(name, "_", " "))
}

func (s *Server) getMe(*call) (any, *apiError) {
	return map[string]any{
		"id": s.botID, "is_bot": true, "first_name": "Agent", "username": s.opts.Username,
		"can_join_groups": true, "can_read_all_group_messages": false, "supports_inline_queries": false,
	}, nil
}

func writeError(w http.ResponseWriter, e *apiError) {
	body := map[string]any{"ok": false, "error_code": e.code, "description": e.text}
	parameters := map[string]any{}
	if e.retryAfter != 0 {
		parameters["retry_after"] = e.retryAfter
	}
	if e.migrateTo != 0 {
		parameters["migrate_to_chat_id"] = e.migrateTo
	}
	if len(parameters) > 0 {
		body["parameters"] = parameters
	}
	writeJSON(w, e.code, body)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller hung up: nobody to tell
}
