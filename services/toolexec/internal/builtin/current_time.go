package builtin

import (
	"context"
	"encoding/json"
	"time"
	_ "time/tzdata" // images need no time zone files

	"github.com/hermes-runtime/hermes/pkg/tool"
)

const localConcurrency = 64

func currentTimeTool() Tool {
	return Tool{
		Spec: tool.Spec{
			Name:        "current_time",
			Description: "Return the current date, time and weekday. Without a time zone the answer is in UTC.",
			Parameters: json.RawMessage(`{
				"type": "object",
				"properties": {
					"timezone": {"type": "string", "description": "IANA name, for example Europe/Berlin or Asia/Shanghai."}
				},
				"additionalProperties": false
			}`),
			Effect: tool.Read,
		},
		Concurrency: localConcurrency,
		Run: func(_ context.Context, call Call) (Result, error) {
			return currentTime(call.Arguments, time.Now()), nil
		},
	}
}

func currentTime(arguments json.RawMessage, now time.Time) Result {
	var args struct {
		Timezone string `json:"timezone"`
	}
	if err := decode(arguments, &args); err != nil {
		return result(tool.Error, err.Error())
	}
	zone, err := time.LoadLocation(args.Timezone)
	if err != nil || args.Timezone == "Local" {
		return resultf(tool.Error, "argument timezone: %q is not an IANA time zone name", args.Timezone)
	}
	return result(tool.OK, now.In(zone).Format("Monday, 2006-01-02T15:04:05Z07:00 (MST)"))
}
