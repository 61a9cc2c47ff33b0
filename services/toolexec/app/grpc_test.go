package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type fakeStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s fakeStream) Context() context.Context { return s.ctx }

func TestRecover_PanicBecomesAnInternalStatusAndALogLine(t *testing.T) {
	t.Parallel()
	var logs strings.Builder
	logger := slog.New(slog.NewTextHandler(&logs, nil))
	_, err := recoverUnary(logger)(t.Context(), nil, nil, func(context.Context, any) (any, error) { panic("boom") })
	require.Equal(t, codes.Internal, status.Code(err))
	err = recoverStream(logger)(nil, fakeStream{ctx: t.Context()}, nil, func(any, grpc.ServerStream) error { panic("boom") })
	require.Equal(t, codes.Internal, status.Code(err))
	require.Equal(t, 2, strings.Count(logs.String(), "err=boom"))
	require.NotContains(t, status.Convert(err).Message(), "boom")
}

func TestRecover_LeavesErrorsAlone(t *testing.T) {
	t.Parallel()
	want := status.Error(codes.InvalidArgument, "no")
	logger := slog.New(slog.DiscardHandler)
	_, err := recoverUnary(logger)(t.Context(), nil, nil, func(context.Context, any) (any, error) { return nil, want })
	require.Equal(t, want, err)
}
