package memstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// previewKey is the run that previews show.
type previewKey struct {
	skey  string
	runID uuid.UUID
}

// preview is a message of the platform and the process that edits it.
type preview struct {
	platformID, egress string
}

// NotePreview implements store.Outbox.
func (s *Store) NotePreview(ctx context.Context, skey string, runID uuid.UUID, platformID, egress string) error {
	if err := alive(ctx); err != nil {
		return fmt.Errorf("note preview: %w", err)
	}
	var c checker
	c.text("preview", skey, platformID, egress)
	if c.err != nil {
		return fmt.Errorf("note preview: %w", c.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := previewKey{skey, runID}
	shown := s.previews[key]
	i := slices.IndexFunc(shown, func(p preview) bool { return p.platformID == platformID })
	if i < 0 {
		s.previews[key] = append(shown, preview{platformID: platformID, egress: egress})
		return nil
	}
	shown[i].egress = egress
	return nil
}

// Previews implements store.Outbox.
func (s *Store) Previews(ctx context.Context, skey string, runID uuid.UUID) ([]string, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("read previews: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []string
	for _, p := range s.previews[previewKey{skey, runID}] {
		out = append(out, p.platformID)
	}
	return out, nil
}

// ForgetPreviews implements store.Outbox.
func (s *Store) ForgetPreviews(ctx context.Context, skey string, runID uuid.UUID) error {
	if err := alive(ctx); err != nil {
		return fmt.Errorf("forget previews: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.previews, previewKey{skey, runID})
	return nil
}
