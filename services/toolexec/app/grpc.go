package app

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	toolv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/tool/v1"
)

const (
	// maxRequestBytes is above the largest arguments, so that those get a precise error.
	maxRequestBytes  = 1 << 20
	maxResponseBytes = 4 << 20
	maxStreams       = 1024
)

// newGRPCServer continues the trace of the caller. Handlers are waited for, so that no tool process outlives Stop.
func newGRPCServer(deps Deps) *grpc.Server {
	return grpc.NewServer(
		grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithTracerProvider(deps.TracerProvider),
			otelgrpc.WithMeterProvider(deps.MeterProvider),
			otelgrpc.WithPropagators(propagation.TraceContext{}),
			otelgrpc.WithFilter(filters.Not(filters.HealthCheck())),
		)),
		grpc.ChainUnaryInterceptor(recoverUnary(deps.Logger)),
		grpc.ChainStreamInterceptor(recoverStream(deps.Logger)),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.MaxSendMsgSize(maxResponseBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.WaitForHandlers(true),
	)
}

func register(s *grpc.Server, tools toolv1.ToolServiceServer, h *health.Server) {
	toolv1.RegisterToolServiceServer(s, tools)
	healthv1.RegisterHealthServer(s, h)
	h.SetServingStatus(toolv1.ToolService_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
}

func recoverUnary(logger *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
		defer recovered(ctx, logger, &err)
		return next(ctx, req)
	}
}

func recoverStream(logger *slog.Logger) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
		defer recovered(stream.Context(), logger, &err)
		return next(srv, stream)
	}
}

// recovered turns a panic into an Internal status: one bad call does not end the others.
func recovered(ctx context.Context, logger *slog.Logger, err *error) {
	p := recover()
	if p == nil {
		return
	}
	logger.ErrorContext(ctx, "call panicked", "err", fmt.Sprint(p), "stack", string(debug.Stack()))
	*err = status.Error(codes.Internal, "internal error")
}
