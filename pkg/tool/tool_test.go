package tool_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/tool"
)

func spec(name, parameters string) tool.Spec {
	return tool.Spec{Name: name, Effect: tool.Read, Parameters: json.RawMessage(parameters)}
}

func compiled(t *testing.T, s tool.Spec) *tool.Tool {
	t.Helper()
	r, err := tool.NewRegistry(s)
	require.NoError(t, err)
	found, ok := r.Lookup(s.Name)
	require.True(t, ok)
	return found
}

func TestAGT03_ShapesOfToolArguments(t *testing.T) {
	t.Parallel()
	now := compiled(t, spec("now", `{"type":"object","properties":{},"required":[]}`))
	read := compiled(t, spec("read", `{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`))

	for id, raw := range map[string]string{"a": "", "b": "null", "c": "  {}\n", "d": ""} {
		args, err := now.CheckArguments(raw)
		require.NoError(t, err, id)
		require.Equal(t, "{}", string(args), id)
	}
	_, err := now.CheckArguments("{}{}")
	require.EqualError(t, err, "arguments are not one JSON object: more follows after byte 2; make one call per object")

	for id, c := range map[string]struct{ raw, want string }{
		"f": {"", "invalid arguments: path: missing, but required"},
		"g": {`{"path":"notes/a`, "arguments are not one JSON object: cut off after 16 bytes"},
		"h": {
			`{"path":"notes/a.txt"}{"path":"notes/b.txt"}`,
			"arguments are not one JSON object: more follows after byte 22; make one call per object",
		},
		"j": {`["notes/a.txt"]`, "arguments are not one JSON object: got array"},
		"k": {`{"path":null}`, "invalid arguments: path: got null, want string"},
	} {
		args, err := read.CheckArguments(c.raw)
		var refused *tool.ArgumentError
		require.ErrorAs(t, err, &refused, id)
		require.Equal(t, c.want, refused.Reason, id)
		require.Nil(t, args, id)
	}

	args, err := read.CheckArguments(`"{\"path\":\"notes/a.txt\"}"`)
	require.NoError(t, err, "i is unwrapped")
	require.JSONEq(t, `{"path":"notes/a.txt"}`, string(args))
}

func TestCheckArguments_NeverThrowsAnythingElseAway(t *testing.T) {
	t.Parallel()
	now := compiled(t, spec("now", ""))
	for _, raw := range []string{`"text"`, `""x`, `5`, `true`, `[]`, `{"a":1}]`, `{a:1}`, `nope`, `"{"`, `"[]"`, `"\"{}\""`} {
		_, err := now.CheckArguments(raw)
		require.ErrorContains(t, err, "arguments are not one JSON object", "%q", raw)
	}
}

func TestCheckArguments_CoercesWhatIsSafe(t *testing.T) {
	t.Parallel()
	tl := compiled(t, spec("f", `{"type":"object","required":["n"],"properties":{
		"n":{"type":"integer"},"x":{"type":"number"},"b":{"type":"boolean"},"s":{"type":"string"},
		"list":{"type":"array","items":{"type":"integer"}},
		"maybe":{"type":["integer","null"]},"both":{"type":["integer","string"]},
		"deep":{"$ref":"#/$defs/deep"}},
		"$defs":{"deep":{"type":"object","properties":{"n":{"type":"integer"}}}}}`))
	for name, c := range map[string]struct{ raw, want string }{
		"text to integer":       {`{"n":"5"}`, `{"n":5}`},
		"text to number":        {`{"n":1,"x":" 2.5 "}`, `{"n":1,"x":2.5}`},
		"text to boolean":       {`{"n":1,"b":"true"}`, `{"n":1,"b":true}`},
		"text to list":          {`{"n":1,"list":"[1,\"2\"]"}`, `{"n":1,"list":[1,2]}`},
		"elements of a list":    {`{"n":1,"list":["1"]}`, `{"n":1,"list":[1]}`},
		"nested by reference":   {`{"n":1,"deep":{"n":"7"}}`, `{"n":1,"deep":{"n":7}}`},
		"text stays text":       {`{"n":1,"s":"5"}`, `{"n":1,"s":"5"}`},
		"text if both go":       {`{"n":1,"both":"5"}`, `{"n":1,"both":"5"}`},
		"null of an optional":   {`{"n":1,"s":null}`, `{"n":1}`},
		"null where it is fine": {`{"n":1,"maybe":null}`, `{"n":1,"maybe":null}`},
		"large numbers exactly": {`{"n":9007199254740993}`, `{"n":9007199254740993}`},
		"NUL is dropped":        {`{"n":1,"s":"a\u0000b"}`, `{"n":1,"s":"ab"}`},
	} {
		args, err := tl.CheckArguments(c.raw)
		require.NoError(t, err, name)
		require.Equal(t, canonical(t, c.want), string(args), name)
	}
	for raw, want := range map[string]string{
		`{"n":"5x"}`:               "n: got string, want integer",
		`{"n":"5.5"}`:              "n: got number, want integer",
		`{"n":1,"b":"yes"}`:        "b: got string, want boolean",
		`{"n":1,"deep":{"n":"x"}}`: "deep.n: got string, want integer",
		`{"s":"x","b":"no"}`:       "n: missing, but required",
	} {
		_, err := tl.CheckArguments(raw)
		require.ErrorContains(t, err, want, raw)
	}
}

func canonical(t *testing.T, raw string) string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(raw))
	dec.UseNumber()
	var v any
	require.NoError(t, dec.Decode(&v))
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return string(out)
}

func TestCheckArguments_KeepsPathsInsideTheWorkspace(t *testing.T) {
	t.Parallel()
	s := spec("f", `{"type":"object","properties":{"path":{"type":"string"},"all":{"type":"array","items":{"type":"string"}},"other":{"type":"string"}}}`)
	s.PathArguments = []string{"path", "all"}
	tl := compiled(t, s)
	for raw, want := range map[string]string{
		`{"path":" notes/a.txt\n"}`:  `{"path":"notes/a.txt"}`,
		`{"path":"./a/../b//c.txt"}`: `{"path":"b/c.txt"}`,
		`{"path":""}`:                `{"path":"."}`,
		`{"path":"..."}`:             `{"path":"..."}`,
		`{"all":["a/","b"]}`:         `{"all":["a","b"]}`,
		`{"other":"/etc/passwd"}`:    `{"other":"/etc/passwd"}`,
	} {
		args, err := tl.CheckArguments(raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, string(args))
	}
	for raw, field := range map[string]string{
		`{"path":"/etc/passwd"}`: "path", `{"path":".."}`: "path", `{"path":"../x"}`: "path",
		`{"path":"a/../../x"}`: "path", `{"path":" /x"}`: "path", `{"all":["ok","../x"]}`: "all[1]",
	} {
		_, err := tl.CheckArguments(raw)
		require.ErrorContains(t, err, field+": ", raw)
		require.ErrorContains(t, err, "outside the workspace", raw)
	}
}

func TestObject_IsAnObjectWhateverTheModelWrote(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		``: `{}`, `null`: `{}`, `{"a": 1}`: `{"a":1}`, `{"a`: `{}`, `[1]`: `{}`, `{}{}`: `{}`, `"{\"a\":1}"`: `{"a":1}`,
		`{"a":"x\u0000"}`: `{"a":"x"}`,
	} {
		require.Equal(t, want, tool.Object(raw), "%q", raw)
	}
}

func TestRegistry_LeavesOutWhatIsBroken(t *testing.T) {
	t.Parallel()
	r, err := tool.NewRegistry(
		spec("b", `{"type":"object"}`), spec("a", ""), spec("b", ""), spec("", ""),
		spec("array", `{"type":"array"}`), spec("syntax", `{`), spec("schema", `{"type":"object","properties":5}`),
		spec("file", `{"type":"object","properties":{"x":{"$ref":"file:///etc/passwd"}}}`),
		tool.Spec{Name: "effect"},
	)
	require.Equal(t, []string{"a", "b"}, r.Names())
	for _, want := range []string{
		"tool b: name is taken", "tool without a name", "tool array: parameters: not a schema of type object",
		"tool syntax: ", "tool schema: ", "tool file: ", `tool effect: effect "" is not`,
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestRegistry_SubsetKeepsTheOrderAndIgnoresUnknownNames(t *testing.T) {
	t.Parallel()
	r, err := tool.NewRegistry(spec("c", ""), spec("a", ""), spec("b", ""))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, r.Subset([]string{"*"}).Names())
	require.Equal(t, []string{"a", "c"}, r.Subset([]string{"c", "gone", "a"}).Names())
	require.Empty(t, r.Subset(nil).Names())
	require.Equal(t, "a", r.Specs()[0].Name)
	require.JSONEq(t, `{"type":"object","properties":{}}`, string(r.Specs()[0].Parameters))
}

func TestRegistry_LookupForgivesSpelling(t *testing.T) {
	t.Parallel()
	r, err := tool.NewRegistry(spec("read_file", ""), spec("Read", ""))
	require.NoError(t, err)
	for name, want := range map[string]string{"read_file": "read_file", " Read-File ": "read_file", "read file": "read_file", " read ": "Read"} {
		found, ok := r.Lookup(name)
		require.True(t, ok, name)
		require.Equal(t, want, found.Name)
	}
	_, ok := r.Lookup("read_files")
	require.False(t, ok)
}

func TestAGT06_VeryLargeResultKeepsBothEnds(t *testing.T) {
	t.Parallel()
	content := "START\n" + strings.Repeat("水", 700000) + "\nEND exit 1"
	const limit = 40000
	r := tool.Bounded(tool.Result{Outcome: tool.OK, Content: content}, limit)
	require.LessOrEqual(t, len(r.Content), limit)
	require.Greater(t, len(r.Content), limit-100, "the room is used")
	require.True(t, utf8.ValidString(r.Content))
	require.True(t, strings.HasPrefix(r.Content, "START\n水"))
	require.True(t, strings.HasSuffix(r.Content, "水\nEND exit 1"))
	require.Contains(t, r.Content, "2100017 bytes")
	require.True(t, r.Truncated)
	require.Equal(t, int64(2100017), r.FullSize)
}

func TestBounded_KeepsTheSizeThatTheToolServerTold(t *testing.T) {
	t.Parallel()
	r := tool.Bounded(tool.Result{Content: strings.Repeat("x", 500), Truncated: true, FullSize: 1 << 20}, 200)
	require.Equal(t, int64(1<<20), r.FullSize)
	require.Len(t, r.Content, 200)
	small := tool.Result{Content: "small"}
	require.Equal(t, small, tool.Bounded(small, 5))
	require.LessOrEqual(t, len(tool.Bounded(tool.Result{Content: strings.Repeat("水", 99)}, 10).Content), 10)
}

func TestAGT07_ReadableOutputForEveryStore(t *testing.T) {
	t.Parallel()
	got := tool.Readable("ok\x00\x01\xff\xfe\x1b[31mred\x1b[0m")
	require.True(t, utf8.ValidString(got))
	require.NotContains(t, got, "\x00")
	require.Contains(t, got, "ok")
	require.Contains(t, got, "red")
	for _, blank := range []string{"", " \n", "\x00"} {
		require.Equal(t, tool.NoOutput, tool.Readable(blank))
	}
}
