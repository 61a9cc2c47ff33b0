package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func operate1(t *testing.T, name string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	_, err := detect(t).Operate(withTimeout(t, time.Minute), t.TempDir(), OperationCall{Name: name}, &out)
	return out.String(), err
}

func TestOperate_PassesArgumentsAndReturnsOutputAndChanges(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	call := OperationCall{Name: "echo", Arguments: json.RawMessage(`{"a":"ü"}`)}
	changed, err := detect(t).Operate(t.Context(), t.TempDir(), call, &out)
	require.NoError(t, err)
	require.Equal(t, []string{"a.txt"}, changed)
	require.JSONEq(t, `{"a":"ü"}`, out.String())
}

func TestOperate_RefusalIsTextForTheModel(t *testing.T) {
	t.Parallel()
	_, err := operate1(t, "refuse")
	var refusal *Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, "not like this", refusal.Reason)
}

func TestOperate_UnknownOperationIsAFault(t *testing.T) {
	t.Parallel()
	_, err := operate1(t, "nothing")
	require.EqualError(t, err, `no operation "nothing"`)
}

func TestOperate_LandlockConfinesTheOperation(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"read outside", "write"} {
		_, err := operate1(t, name)
		if !detect(t).Report().Limit(LimitFiles).Enforced() {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, "permission denied", name)
	}
}

func TestOperate_IsBoundedInFileSize(t *testing.T) {
	t.Parallel()
	_, err := operate1(t, "write a lot")
	require.ErrorContains(t, err, "file too large")
}

func TestOperate_IsBoundedInMemory(t *testing.T) {
	t.Parallel()
	out, err := operate1(t, "allocate")
	var refusal *Refusal
	require.ErrorAs(t, err, &refusal)
	// The race detector's runtime has words of its own.
	require.Regexp(t, "^the tool (ran out of memory$|process ended early: exit status [0-9]+$)", refusal.Reason)
	require.Empty(t, out)
}

func TestOperate_EndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := detect(t).Operate(ctx, t.TempDir(), OperationCall{Name: "hang"}, io.Discard)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begin), 10*time.Second)
}
