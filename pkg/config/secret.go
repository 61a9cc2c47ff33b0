package config

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// Secret is a reference to a secret: "env:NAME" or "file:PATH". It prints as the reference; only Value reads the
// secret, each time anew, so that a rotated file is seen.
type Secret struct {
	ref string
}

// NewSecret returns the secret that ref points to.
func NewSecret(ref string) (Secret, error) {
	var s Secret
	err := s.UnmarshalText([]byte(ref))
	return s, err
}

// UnmarshalText accepts references only, so that no secret stands in a configuration file.
func (s *Secret) UnmarshalText(text []byte) error {
	ref := string(text)
	kind, name, _ := strings.Cut(ref, ":")
	if ref != "" && (kind != "env" && kind != "file" || name == "") {
		return fmt.Errorf("a secret must be a reference, env:NAME or file:PATH")
	}
	s.ref = ref
	return nil
}

// MarshalText returns the reference.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.ref), nil }

// Set reports whether there is a reference.
func (s Secret) Set() bool { return s.ref != "" }

// String returns the reference.
func (s Secret) String() string { return s.ref }

// LogValue returns the reference.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.ref) }

// Value reads the secret. An unset reference is "", a missing or empty secret is an error that names the reference.
func (s Secret) Value() (string, error) {
	if !s.Set() {
		return "", nil
	}
	kind, name, _ := strings.Cut(s.ref, ":")
	value := os.Getenv(name)
	if kind == "file" {
		raw, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("secret %s: %w", s.ref, err)
		}
		value = strings.TrimRight(string(raw), "\r\n")
	}
	if value == "" {
		return "", fmt.Errorf("secret %s: is empty or not set", s.ref)
	}
	return value, nil
}
