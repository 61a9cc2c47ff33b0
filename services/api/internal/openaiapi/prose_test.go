package openaiapi

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// play feeds a script: words are text, | is a step, ! a reset. It returns all that was sent.
func play(script, final string) (string, error) {
	var p prose
	var sent strings.Builder
	for word := range strings.FieldsSeq(script) {
		switch word {
		case "|":
			p.step()
		case "!":
			p.reset()
		default:
			text, err := p.text(strings.ReplaceAll(word, "_", " "))
			sent.WriteString(text)
			if err != nil {
				return sent.String(), err
			}
		}
	}
	rest, err := p.finish(final)
	sent.WriteString(rest)
	return sent.String(), err
}

func TestProse_OnlyGrowsAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, final, want string }{
		"text as it comes":                           {"he llo", "hello", "hello"},
		"the end brings what was lost":               {"he", "hello", "hello"},
		"all of it was lost":                         {"", "hello", "hello"},
		"no text at all":                             {"", "", ""},
		"a preamble stays":                           {"look | two_files", "two files", "look\n\ntwo files"},
		"two steps without text between":             {"look | | found", "found", "look\n\nfound"},
		"a step before any text":                     {"| found", "found", "found"},
		"the answer was lost behind a preamble":      {"look |", "found", "look\n\nfound"},
		"the answer is the preamble":                 {"look |", "look", "look"},
		"the final text is trimmed":                  {"_hello_", "hello", " hello "},
		"the final text is trimmed and longer":       {"_hel", "hello", " hello"},
		"a reset that repeats":                       {"hel ! hel lo", "hello", "hello"},
		"a reset with more at once":                  {"hel ! hello", "hello", "hello"},
		"a reset before any text":                    {"! hello", "hello", "hello"},
		"a reset that says less so far":              {"hello ! he", "hello", "hello"},
		"a reset and silence":                        {"hel !", "hello", "hello"},
		"a reset that repeats all passages":          {"look | fou ! look | found", "found", "look\n\nfound"},
		"a reset that repeats the last passage":      {"look | fou ! f o und", "found", "look\n\nfound"},
		"a reset behind the last passage":            {"look | ! found", "found", "look\n\nfound"},
		"a reset that repeats a closed passage":      {"look | ! lo ok | found", "found", "look\n\nfound"},
		"a reset that begins in the middle":          {"one | two | thr ! two | three", "three", "one\n\ntwo\n\nthree"},
		"a second reset":                             {"hel ! he ! hell o", "hello", "hello"},
		"a second reset behind a caught up one":      {"look | fo ! fou ! look | found", "found", "look\n\nfound"},
		"a reset with another step in the same text": {"one | t ! one | two | three", "three", "one\n\ntwo\n\nthree"},
	} {
		got, err := play(c.script, c.final)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

func TestProse_EndsWhereItCannotGoOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, final, sent string }{
		"another attempt says something else":       {"hello ! help", "help", "hello"},
		"it does so later":                          {"hel ! hel lo | bye ! hello | good", "good", "hello\n\nbye"},
		"the committed answer is another":           {"hello", "bye", "hello"},
		"and shorter":                               {"hello", "hell", "hello"},
		"another preamble while a passage was open": {"look | fo ! see", "found", "look\n\nfo"},
	} {
		got, err := play(c.script, c.final)
		require.ErrorIs(t, err, errDiverged, name)
		require.Equal(t, c.sent, got, name)
	}
}
