package telegram

import (
	"fmt"
	"net/http"
	"strings"
)

// file is one that the server keeps.
type file struct {
	path string
	data []byte
}

// AddFile lets a file be downloaded: getFile answers for id with path, under which the data lies.
func (s *Server) AddFile(id, path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[id] = &file{path: path, data: data}
}

// FileData returns what was uploaded or added as the file with this id.
func (s *Server) FileData(id string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[id]
	if f == nil {
		return nil, false
	}
	return f.data, true
}

func (s *Server) sendPhoto(c *call) (any, *apiError) { return s.sendFile(c, "photo") }

func (s *Server) sendDocument(c *call) (any, *apiError) { return s.sendFile(c, "document") }

func (s *Server) sendFile(c *call, kind string) (any, *apiError) {
	f, err := c.formatted("caption")
	switch {
	case err != nil:
		return nil, err
	case units(f.text) > maxCaption:
		return nil, badRequest("message caption is too long")
	}
	id, name, err := s.media(c, kind)
	if err != nil {
		return nil, err
	}
	return s.place(c, Message{Kind: kind, Text: f.text, HTML: f.html, Entities: f.entities, File: id, FileName: name})
}

// media finds the file of a message: uploaded under the name of the argument or under the one that attach:// gives, known
// by its id, or named by a URL.
func (s *Server) media(c *call, arg string) (id, name string, err *apiError) {
	value := c.args[arg]
	field := arg
	if rest, ok := strings.CutPrefix(value, "attach://"); ok {
		field = rest
	}
	if up, ok := c.uploads[field]; ok {
		if len(up.data) == 0 {
			return "", "", badRequest("file must be non-empty")
		}
		id = fmt.Sprintf("upload-%d", len(s.files)+1)
		s.files[id] = &file{path: arg + "s/" + id, data: up.data}
		return id, up.name, nil
	}
	switch {
	case value == "":
		return "", "", badRequest("there is no %s in the request", arg)
	case strings.HasPrefix(value, "http://"), strings.HasPrefix(value, "https://"), s.files[value] != nil:
		return value, "", nil
	default:
		return "", "", badRequest("wrong remote file identifier specified: Wrong string length")
	}
}

func (s *Server) getFile(c *call) (any, *apiError) {
	id := c.args["file_id"]
	f := s.files[id]
	if f == nil {
		return nil, badRequest("invalid file_id")
	}
	return map[string]any{"file_id": id, "file_unique_id": "u" + id, "file_size": len(f.data), "file_path": f.path}, nil
}

func (s *Server) download(w http.ResponseWriter, path string) {
	s.mu.Lock()
	var data []byte
	for _, f := range s.files {
		if f.path == path {
			data = f.data
		}
	}
	s.mu.Unlock()
	if data == nil {
		writeError(w, &apiError{code: http.StatusNotFound, text: "Not Found"})
		return
	}
	_, _ = w.Write(data) // the caller hung up: nobody to tell
}
