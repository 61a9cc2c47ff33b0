package intent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/intent"
)

func TestING10_InvisibleCharactersAroundCommandsAndInsideText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"\ufeff/stop", "/stop\u200b", "\u200f/stop\u200f", "\u2066/stop\u2069"} {
		cmd, ok := intent.ParseCommand(text)
		require.True(t, ok, "%q", text)
		require.Equal(t, event.Command{Name: "stop"}, cmd, "%q", text)
	}

	cmd, ok := intent.ParseCommand("/new\u00a0trip plan")
	require.True(t, ok)
	require.Equal(t, event.Command{Name: "new", Args: "trip plan"}, cmd)

	require.Empty(t, intent.Clean("\u200b\u200b"), "no content: no run")

	unchanged := []string{"\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\U0001F469\u200D\U0001F4BB ok"}
	for _, text := range unchanged {
		require.Equal(t, text, intent.Clean(text))
	}
	require.Equal(t, "+15550001111", intent.Clean("\u202a+15550001111\u202c"))
}

func TestClean_RepairsWhatNoStoreTakes(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a b", intent.Clean("a\x00 b"))
	require.Equal(t, "ok\uFFFD", intent.Clean("ok\xff"))
	require.Equal(t, "  two  spaces\n", intent.Clean("  two  spaces\n"), "white space is the writer's")
}

func TestFold_UnifiesSpacesAndPunctuation(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		" a\u00a0\u3000b\n\tc ": "a b c",
		"／ｓｔｏｐ！":                "/stop!",
		"“hi”，don’t":            `"hi",don't`,
		"好。再见、":                 "好.再见,",
		"10–20\u200b—30":        "10-20-30",
		"Case Stays":            "Case Stays",
	} {
		require.Equal(t, want, intent.Fold(text))
	}
}

func TestParseCommand_FindsNameAndArguments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]event.Command{
		"/Help":                      {Name: "help"},
		"  /stop@agent_bot all":      {Name: "stop", Args: "all"},
		"／status":                    {Name: "status"},
		"/steer do this\nand “that”": {Name: "steer", Args: "do this\nand “that”"},
		"/model gpt/5":               {Name: "model", Args: "gpt/5"},
	} {
		cmd, ok := intent.ParseCommand(text)
		require.True(t, ok, "%q", text)
		require.Equal(t, want, cmd)
	}
}

func TestParseCommand_LeavesTextAndPathsAlone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "/", "/ stop", "/@bot", "stop", "/usr/bin/env is a path", "a /stop", "//note"} {
		_, ok := intent.ParseCommand(text)
		require.False(t, ok, "%q", text)
	}
}
