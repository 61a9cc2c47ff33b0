// Package telegram is the Telegram platform over the Bot API.
//
// What comes in is checked by [VerifyWebhook] and taken apart by [Parse]; what goes out is rendered as Telegram HTML,
// cut and sent by [Sender]. [API] is the client that both directions share: the ingress polls and registers webhooks
// with it. [API] and [Sender] are safe for concurrent use.
package telegram

// Platform is the name of this platform in sources and addresses.
const Platform = "telegram"
