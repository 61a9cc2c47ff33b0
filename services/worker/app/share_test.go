package app_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func TestWorkers_ShareSessionsAndAnswerEachMessageOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: echo})
	b.start(t)
	b.second(t)

	const chats, messages = 24, 10 // more than a slot serves in a row
	for i := range chats {
		c := newChat(webhook, fmt.Sprint(i))
		var rows []store.AdmitMessage
		for n := range messages {
			rows = append(rows, c.row(fmt.Sprintf("m%d", n), fmt.Sprint(n)))
		}
		first := b.admit(t, rows...)[0]
		for n := range 3 {
			b.ring(t, c, first, n)
		}
	}
	for i := range chats {
		c := newChat(webhook, fmt.Sprint(i))
		s := b.idle(t, c)
		require.Equal(t, []int64{messages, messages}, []int64{s.DoneSeq, s.OutSeq})
		for n := range messages {
			sub, err := b.mem.Submission(t.Context(), c.skey, fmt.Sprintf("m%d", n))
			require.NoError(t, err)
			require.Equal(t, store.RunDone, sub.Run.State)
			require.Equal(t, []int64{int64(n + 1), int64(n + 1), 1}, []int64{sub.Run.FromSeq, sub.Run.ToSeq, int64(sub.Run.Attempts)})
			require.Equal(t, []string{fmt.Sprintf("re: %d", n)}, b.replies(t, sub.Run.ID))
		}
	}
	require.Len(t, b.model.calls(), chats*messages)
}
