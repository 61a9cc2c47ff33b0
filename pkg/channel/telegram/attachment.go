package telegram

import (
	"cmp"
	"fmt"

	"github.com/hermes-runtime/hermes/pkg/event"
)

// Kinds of attachments. Animations are videos without sound.
const (
	kindImage    = "image"
	kindAudio    = "audio"
	kindVideo    = "video"
	kindFile     = "file"
	kindSticker  = "sticker"
	kindLocation = "location"
)

// attachments refers to what m carries by file id, which stays valid; URLs of files expire within the hour.
func (m *message) attachments() []event.Attachment {
	var all []event.Attachment
	if p := largest(m.Photo); p.ID != "" {
		all = append(all, event.Attachment{Kind: kindImage, Ref: clean(p.ID), MIME: "image/jpeg", Size: p.Size})
	}
	all = appendFile(all, kindAudio, m.Voice, "audio/ogg")
	all = appendFile(all, kindAudio, m.Audio, "audio/mpeg")
	all = appendFile(all, kindVideo, m.Video, "video/mp4")
	all = appendFile(all, kindVideo, m.VideoNote, "video/mp4")
	all = appendFile(all, kindVideo, m.Animation, "video/mp4")
	if m.Animation == nil { // else the document is a copy of it for old clients
		all = appendFile(all, kindFile, m.Document, "application/octet-stream")
	}
	if s := m.Sticker; s != nil && s.ID != "" {
		all = append(all, event.Attachment{Kind: kindSticker, Ref: clean(s.ID), MIME: s.mime(), Size: s.Size, Name: clean(s.Emoji)})
	}
	if m.Location != nil {
		all = append(all, m.place())
	}
	return all
}

func appendFile(all []event.Attachment, kind string, f *file, mime string) []event.Attachment {
	if f == nil || f.ID == "" {
		return all
	}
	return append(all, event.Attachment{
		Kind: kind, Ref: clean(f.ID), MIME: clean(cmp.Or(f.MIME, mime)), Size: f.Size, Name: clean(f.Name),
	})
}

func largest(sizes []photoSize) photoSize {
	var best photoSize
	for _, s := range sizes {
		if cmp.Or(cmp.Compare(s.Width*s.Height, best.Width*best.Height), cmp.Compare(s.Size, best.Size)) > 0 || best.ID == "" {
			best = s
		}
	}
	return best
}

func (s *sticker) mime() string {
	switch {
	case s.Video:
		return "video/webm"
	case s.Animated:
		return "application/x-tgsticker"
	default:
		return "image/webp"
	}
}

// place is a location as a geo URI (RFC 5870).
func (m *message) place() event.Attachment {
	a := event.Attachment{Kind: kindLocation, Ref: fmt.Sprintf("geo:%g,%g", m.Location.Latitude, m.Location.Longitude)}
	if m.Venue != nil {
		a.Name = clean(m.Venue.Title)
	}
	return a
}
