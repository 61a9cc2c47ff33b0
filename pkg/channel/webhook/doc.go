// Package webhook is the generic webhook platform: any program that can send and receive JSON over HTTP.
//
// What comes in is verified by [Receiver.Verify] (Standard Webhooks) and taken apart by [Receiver.Parse]; what goes out
// is signed the same way by [Sender]. The webhook-id of a reply is the same for every try, so that a receiver can drop
// the second one. All types are safe for concurrent use.
package webhook

// Platform is the name of this platform in sources and addresses.
const Platform = "webhook"
