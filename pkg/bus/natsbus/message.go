package natsbus

import (
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

// internalHeaders start the names of what broker and client add; they never reach the receiver.
const internalHeaders = "Nats-"

func toNats(m bus.Msg) *nats.Msg {
	h := make(nats.Header, len(m.Header)+1)
	for k, v := range m.Header {
		h[k] = v
	}
	if m.ID != "" {
		h[jetstream.MsgIDHeader] = []string{m.ID}
	}
	return &nats.Msg{Subject: m.Subject, Reply: m.Reply, Header: h, Data: m.Data}
}

func fromNats(m *nats.Msg) bus.Msg {
	id, h := fromHeader(m.Header)
	return bus.Msg{Subject: m.Subject, ID: id, Header: h, Data: m.Data, Reply: m.Reply}
}

// fromHeader takes the header over without a copy: it belongs to one received message.
func fromHeader(in nats.Header) (id string, h bus.Header) {
	if v := in[jetstream.MsgIDHeader]; len(v) > 0 {
		id = v[0]
	}
	for k := range in {
		if strings.HasPrefix(k, internalHeaders) {
			delete(in, k)
		}
	}
	if len(in) == 0 {
		return id, nil
	}
	return id, bus.Header(in)
}
