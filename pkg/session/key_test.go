package session_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/session"
)

type vector struct {
	Name    string
	Source  session.Source
	Options struct {
		GroupSessionsPerUser  bool    `json:"group_sessions_per_user"`
		ThreadSessionsPerUser bool    `json:"thread_sessions_per_user"`
		Profile               *string `json:"profile"`
	}
	LIDMap      map[string]string `json:"whatsapp_lid_map"`
	ExpectedKey string            `json:"expected_session_key"`
	Shared      bool              `json:"expected_shared_multi_user"`
}

func (v vector) options() session.Options {
	opt := session.Options{
		GroupSessionsPerUser:  v.Options.GroupSessionsPerUser,
		ThreadSessionsPerUser: v.Options.ThreadSessionsPerUser,
		Aliases: func(id string) []string {
			var ids []string
			for _, file := range []string{"lid-mapping-%s.json", "lid-mapping-%s_reverse.json"} {
				if other, ok := v.LIDMap[fmt.Sprintf(file, id)]; ok {
					ids = append(ids, other)
				}
			}
			return ids
		},
	}
	if v.Options.Profile != nil {
		opt.Profile = *v.Options.Profile
	}
	return opt
}

func TestKey_Vectors(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/session_key.json")
	require.NoError(t, err)
	var vectors []vector
	require.NoError(t, json.Unmarshal(raw, &vectors))
	require.Len(t, vectors, 162)
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, v.ExpectedKey, session.Key(v.Source, v.options()))
			require.Equal(t, v.Shared, session.SharedMultiUser(v.Source, v.options()))
		})
	}
}

func TestKey_WhatsAppIDWithForeignCharactersIsNormalisedNotFollowed(t *testing.T) {
	t.Parallel()
	opt := session.DefaultOptions()
	opt.Aliases = func(id string) []string { t.Errorf("followed %q", id); return nil }
	src := session.Source{Platform: "whatsapp", ChatType: "dm", ChatID: "../etc/passwd@lid"}
	require.Equal(t, "agent:main:whatsapp:dm:../etc/passwd", session.Key(src, opt))
}

func TestSKey_IsBoundedAndSeparatesTenants(t *testing.T) {
	t.Parallel()
	require.Equal(t, "rlwzkv2ci5rmicx4ufyx3v52ai", session.SKey("default", "agent:main:api:dm:1"))
	require.NotEqual(t, session.SKey("a", "b\x00c"), session.SKey("a\x00b", "d"))
	require.NotEqual(t, session.SKey("t1", "k"), session.SKey("t2", "k"))
	require.Len(t, session.SKey("", ""), session.SKeyLen)
}

func TestPartition_IsFixed(t *testing.T) {
	t.Parallel()
	counts := make([]int, session.Partitions)
	for i := range 64000 {
		counts[session.Partition(session.SKey("t", fmt.Sprint(i)))]++
	}
	for p, n := range counts {
		require.InDelta(t, 1000, n, 200, "partition %d", p)
	}
	require.Equal(t, 47, session.Partition("aaaaaaaaaaaaaaaaaaaaaaaaaa"))
}

func TestEscapeID_KeepsDistinctIDsApart(t *testing.T) {
	t.Parallel()
	require.Equal(t, "tg%3A-100", session.EscapeID("tg:-100"))
	require.NotEqual(t, session.EscapeID("a:b"), session.EscapeID("a%3Ab"))
}

func TestSourceValidate_NamesTheField(t *testing.T) {
	t.Parallel()
	err := session.Source{Platform: "webhook", ChatID: "a\x00b", UserID: "\xff"}.Validate()
	require.EqualError(t, err, "source.chat_id: contains a NUL byte\nsource.user_id: not valid UTF-8")
}
