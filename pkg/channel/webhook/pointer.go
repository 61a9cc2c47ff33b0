package webhook

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

var (
	errMissing = errors.New("is missing")
	errType    = errors.New("must be a string")
)

// textAt returns the string or number that a JSON pointer (RFC 6901) leads to. Numbers come as they were written:
// ids exceed what a float can hold.
func textAt(doc any, pointer string) (string, error) {
	value, ok := lookup(doc, pointer)
	if !ok || value == nil {
		return "", errMissing
	}
	switch v := value.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	default:
		return "", errType
	}
}

func lookup(doc any, pointer string) (any, bool) {
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		var ok bool
		if doc, ok = step(doc, token); !ok {
			return nil, false
		}
	}
	return doc, true
}

func step(doc any, token string) (any, bool) {
	switch node := doc.(type) {
	case map[string]any:
		v, ok := node[token]
		return v, ok
	case []any:
		i, err := strconv.Atoi(token)
		if err != nil || i < 0 || i >= len(node) {
			return nil, false
		}
		return node[i], true
	default:
		return nil, false
	}
}
