package telegram

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// The types below hold what is read of an update, nothing else.

type update struct {
	ID                *int64         `json:"update_id"`
	Message           *message       `json:"message"`
	EditedMessage     *message       `json:"edited_message"`
	ChannelPost       *message       `json:"channel_post"`
	EditedChannelPost *message       `json:"edited_channel_post"`
	CallbackQuery     *callbackQuery `json:"callback_query"`
	MyChatMember      *membership    `json:"my_chat_member"`
	Stopped           *stopped       `json:"stopped_message_generation"`
}

type message struct {
	ID        int64  `json:"message_id"`
	ThreadID  int64  `json:"message_thread_id"`
	IsTopic   bool   `json:"is_topic_message"`
	From      *user  `json:"from"`
	As        *chat  `json:"sender_chat"`
	Forwarded bool   `json:"is_automatic_forward"`
	Date      int64  `json:"date"`
	EditDate  int64  `json:"edit_date"`
	Chat      *chat  `json:"chat"`
	Album     string `json:"media_group_id"`

	ReplyTo *message   `json:"reply_to_message"`
	Quoted  *textQuote `json:"quote"`

	Text            string   `json:"text"`
	Entities        []entity `json:"entities"`
	Caption         string   `json:"caption"`
	CaptionEntities []entity `json:"caption_entities"`

	Photo     []photoSize `json:"photo"`
	Voice     *file       `json:"voice"`
	Audio     *file       `json:"audio"`
	Video     *file       `json:"video"`
	VideoNote *file       `json:"video_note"`
	Animation *file       `json:"animation"`
	Document  *file       `json:"document"`
	Sticker   *sticker    `json:"sticker"`
	Location  *location   `json:"location"`
	Venue     *venue      `json:"venue"`

	MigrateTo   int64 `json:"migrate_to_chat_id"`
	MigrateFrom int64 `json:"migrate_from_chat_id"`
}

type user struct {
	Number    int64  `json:"id"`
	IsBot     bool   `json:"is_bot"`
	FirstName string `json:"first_name"`
	LastName  string `json:"last_name"`
	Username  string `json:"username"`
}

func (u *user) id() string { return number(u.Number) }

type chat struct {
	Number int64  `json:"id"`
	Type   string `json:"type"`
	Title  string `json:"title"`
}

func (c *chat) id() string { return number(c.Number) }

// entity marks a part of a text; offset and length count UTF-16 units.
type entity struct {
	Type   string `json:"type"`
	Offset int    `json:"offset"`
	Length int    `json:"length"`
	User   *user  `json:"user"`
}

type textQuote struct {
	Text string `json:"text"`
}

type file struct {
	ID   string `json:"file_id"`
	MIME string `json:"mime_type"`
	Size int64  `json:"file_size"`
	Name string `json:"file_name"`
}

type photoSize struct {
	ID     string `json:"file_id"`
	Width  int64  `json:"width"`
	Height int64  `json:"height"`
	Size   int64  `json:"file_size"`
}

type sticker struct {
	ID       string `json:"file_id"`
	Size     int64  `json:"file_size"`
	Emoji    string `json:"emoji"`
	Animated bool   `json:"is_animated"`
	Video    bool   `json:"is_video"`
}

type location struct {
	Latitude  float64 `json:"latitude"`
	Longitude float64 `json:"longitude"`
}

type venue struct {
	Title string `json:"title"`
}

type callbackQuery struct {
	ID      string   `json:"id"`
	From    *user    `json:"from"`
	Message *message `json:"message"`
	Data    string   `json:"data"`
}

type membership struct {
	Chat *chat `json:"chat"`
}

// stopped tells that the person ended a draft.
type stopped struct {
	Chat     *chat `json:"chat"`
	ThreadID int64 `json:"message_thread_id"`
}

// allowedUpdates are the updates to ask for: those that [Parse] makes something of.
func allowedUpdates() []string {
	return []string{"message", "edited_message", "callback_query", "my_chat_member", "stopped_message_generation"}
}

func decode(raw []byte) (*update, error) {
	var u update
	if err := json.Unmarshal(raw, &u); err != nil {
		return nil, fmt.Errorf("read update: %w", err)
	}
	if u.ID == nil {
		return nil, errors.New("read update: it has no update_id")
	}
	return &u, nil
}

// UpdateID returns the id of an update. It rises with each update of a bot, except after a week of silence.
func UpdateID(raw []byte) (int64, error) {
	var head struct {
		ID *int64 `json:"update_id"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return 0, fmt.Errorf("read update id: %w", err)
	}
	if head.ID == nil {
		return 0, errors.New("read update id: there is none")
	}
	return *head.ID, nil
}

// number is an id as it is used everywhere else; "" for none.
func number(id int64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatInt(id, 10)
}
