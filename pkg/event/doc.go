// Package event defines what travels on the bus: the accepted [Message] and the [Lifecycle] events that tell what
// becomes of it.
//
// Messages are encoded as protobuf (hermes.event.v1) on the bus and as JSON in the inbox; both codecs are in this
// package and lose nothing. Trace context travels in message headers, see [InjectTrace] and [ExtractTrace].
package event
