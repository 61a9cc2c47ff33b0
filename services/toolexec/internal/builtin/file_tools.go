package builtin

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/hermes-runtime/hermes/pkg/tool"
	"github.com/hermes-runtime/hermes/services/toolexec/internal/sandbox"
)

const (
	fileConcurrency = 32
	pathArgument    = "path"
)

// Operations are the file tools by name, run inside of a sandboxed process.
func Operations() map[string]sandbox.Operation {
	return map[string]sandbox.Operation{
		"list_files":   {Run: listFiles},
		"read_file":    {Run: readFile},
		"search_files": {Run: searchFiles},
		"write_file":   {Run: writeFile, Writes: true},
	}
}

func fileTool(box Sandbox, effect tool.Effect, name, description, parameters string) Tool {
	return Tool{
		Spec: tool.Spec{
			Name: name, Description: description, Parameters: json.RawMessage(parameters), Effect: effect,
			PathArguments: []string{pathArgument},
		},
		Concurrency: fileConcurrency,
		Run: func(ctx context.Context, call Call) (Result, error) {
			return operate(ctx, box, name, call)
		},
	}
}

func operate(ctx context.Context, box Sandbox, name string, call Call) (Result, error) {
	out := NewOutput(call.OutputBytes)
	op := sandbox.OperationCall{Name: name, Arguments: call.Arguments, OutputBytes: call.OutputBytes}
	changed, err := box.Operate(ctx, call.Dir, op, out)
	switch {
	case err == nil:
		r := out.Result(tool.OK, "")
		r.Changed = changed
		return r, nil
	case errors.Is(err, context.DeadlineExceeded):
		return out.Result(tool.Timeout, "[stopped: time is up]"), nil
	default:
		return refused(err)
	}
}

func readFileTool(box Sandbox) Tool {
	return fileTool(box, tool.Read, "read_file",
		"Read a text file of the workspace. Long files come in parts: the last line says at which offset to read on.",
		`{
			"type": "object",
			"properties": {
				"path": {"type": "string", "minLength": 1, "description": "File, relative to the workspace."},
				"offset": {"type": "integer", "minimum": 1, "description": "First line to read, 1 is the default."},
				"limit": {"type": "integer", "minimum": 1, "description": "Number of lines, at most and by default 2000."}
			},
			"required": ["path"],
			"additionalProperties": false
		}`)
}

func writeFileTool(box Sandbox) Tool {
	return fileTool(box, tool.Idempotent, "write_file",
		"Write a text file of the workspace. An existing file is replaced as a whole; missing folders are made.",
		`{
			"type": "object",
			"properties": {
				"path": {"type": "string", "minLength": 1, "description": "File, relative to the workspace."},
				"content": {"type": "string", "description": "The whole new content."}
			},
			"required": ["path", "content"],
			"additionalProperties": false
		}`)
}

func listFilesTool(box Sandbox) Tool {
	return fileTool(box, tool.Read, "list_files",
		"List a folder of the workspace, one entry per line: folders end with /, files have their size in bytes. At most "+
			"1000 entries; .git is not entered.",
		`{
			"type": "object",
			"properties": {
				"path": {"type": "string", "description": "Folder, relative to the workspace; default: the workspace itself."},
				"recursive": {"type": "boolean", "description": "Also list the folders inside, default false."}
			},
			"additionalProperties": false
		}`)
}

func searchFilesTool(box Sandbox) Tool {
	return fileTool(box, tool.Read, "search_files",
		"Search the text files of the workspace line by line. Returns file:line: text for at most 200 lines; binary files "+
			"and .git are skipped.",
		`{
			"type": "object",
			"properties": {
				"pattern": {"type": "string", "minLength": 1,
					"description": "Regular expression in RE2 syntax, or plain text with literal."},
				"literal": {"type": "boolean", "description": "Take the pattern as plain text, default false."},
				"ignore_case": {"type": "boolean", "description": "Ignore upper and lower case, default false."},
				"path": {"type": "string", "description": "File or folder to search in; default: the workspace."}
			},
			"required": ["pattern"],
			"additionalProperties": false
		}`)
}
