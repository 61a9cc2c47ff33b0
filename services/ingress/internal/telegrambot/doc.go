// Package telegrambot is the door of Telegram bots: each channel either polls its updates or has them posted to
// /v1/telegram/{channel}. Either way an update is confirmed to Telegram when the broker has stored what it says.
//
// A bot asks the platform for its name first. Until it is known nothing is polled and posts are answered with 503:
// without it nobody can tell who is mentioned.
package telegrambot
