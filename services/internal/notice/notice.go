// Package notice makes the replies with which the engine itself answers.
package notice

import (
	"encoding/json"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// To returns a notice for an address. Text is Markdown. The store names it.
func To(a event.Address, text string) store.NewReply {
	target, err := json.Marshal(a)
	if err != nil { // strings only: cannot fail
		panic(err)
	}
	return store.NewReply{
		Platform: a.Platform, Target: target, Parts: channel.EncodeParts(channel.Part{Markdown: text, Notice: true}),
		Read: a.Read(),
	}
}
