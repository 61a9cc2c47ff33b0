package builtin

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hermes-runtime/hermes/pkg/tool"
)

func outputOf(limit int, writes ...string) *Output {
	o := NewOutput(limit)
	for _, w := range writes {
		_, _ = fmt.Fprint(o, w) // never fails
	}
	return o
}

func TestOutput_KeepsWhatFits(t *testing.T) {
	t.Parallel()
	r := outputOf(1024, "one\n", "two").Result(tool.OK, "[exit code 0]")
	require.Equal(t, "one\ntwo\n[exit code 0]", r.Content)
	require.False(t, r.Truncated)
	require.EqualValues(t, len(r.Content), r.FullSize)
}

func TestOutput_FooterStandsAloneWithoutOutput(t *testing.T) {
	t.Parallel()
	require.Equal(t, "[exit code 0]", outputOf(1024).Result(tool.OK, "[exit code 0]").Content)
}

func TestOutput_CutsTheMiddleAndSaysHowMuch(t *testing.T) {
	t.Parallel()
	o := NewOutput(1024)
	for i := range 100_000 {
		_, _ = fmt.Fprintf(o, "%06d\n", i)
	}
	r := o.Result(tool.Error, "[exit code 1]")
	require.Equal(t, tool.Error, r.Outcome)
	require.True(t, r.Truncated)
	require.EqualValues(t, 700_000, r.FullSize)
	require.LessOrEqual(t, len(r.Content), 1024)
	require.True(t, strings.HasPrefix(r.Content, "000000\n000001\n"), r.Content)
	require.True(t, strings.HasSuffix(r.Content, "099999\n[exit code 1]"), r.Content)
	require.Equal(t, 700_000, keptBytes(t, r.Content, "[exit code 1]")+cutBytes(t, r.Content))
}

func cutBytes(t *testing.T, content string) int {
	t.Helper()
	found := regexp.MustCompile(`\n\[(\d+) bytes cut\]\n`).FindStringSubmatch(content)
	require.Len(t, found, 2, content)
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

func keptBytes(t *testing.T, content, footer string) int {
	t.Helper()
	head, tail, ok := strings.Cut(strings.TrimSuffix(content, footer), fmt.Sprintf("\n[%d bytes cut]\n", cutBytes(t, content)))
	require.True(t, ok)
	return len(head) + len(tail)
}

func TestOutput_CutsBetweenCharacters(t *testing.T) {
	t.Parallel()
	for shift := range 4 {
		r := outputOf(1024, strings.Repeat("x", shift), strings.Repeat("😀", 5000)).Result(tool.OK, "")
		require.NotContains(t, r.Content, "?")
		require.True(t, utf8.ValidString(r.Content))
		require.Equal(t, 20_000+shift, keptBytes(t, r.Content, "")+cutBytes(t, r.Content))
	}
}

func TestOutput_IsAlwaysCleanAndWithinItsLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1024, 3000).Draw(t, "limit")
		o := NewOutput(limit)
		total := 0
		for _, w := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 800), 0, 12).Draw(t, "writes") {
			n, err := o.Write(w)
			if err != nil || n != len(w) {
				t.Fatalf("Write = %d, %v", n, err)
			}
			total += n
		}
		r := o.Result(tool.OK, "[exit code 0]")
		if len(r.Content) > limit {
			t.Fatalf("%d bytes, limit %d", len(r.Content), limit)
		}
		if !utf8.ValidString(r.Content) || strings.ContainsRune(r.Content, 0) {
			t.Fatalf("not clean: %q", r.Content)
		}
		if r.Truncated && r.FullSize != int64(total) {
			t.Fatalf("full size %d, wrote %d", r.FullSize, total)
		}
	})
}

func TestClip_LeavesShortResultsAndCutsLongOnes(t *testing.T) {
	t.Parallel()
	short := Clip(result(tool.OK, "a\x00b\xff"), 1024)
	require.Equal(t, "ab?", short.Content)
	long := resultf(tool.Denied, "%s", strings.Repeat("y", 5000))
	long.Changed = []string{"f"}
	long = Clip(long, 1024)
	require.Equal(t, tool.Denied, long.Outcome)
	require.LessOrEqual(t, len(long.Content), 1024)
	require.True(t, long.Truncated)
	require.EqualValues(t, 5000, long.FullSize)
	require.Equal(t, []string{"f"}, long.Changed)
}
