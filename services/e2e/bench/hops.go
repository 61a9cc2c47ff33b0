package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// publish stores the messages of a round as the doors do, all at once.
func (p *party) publish(ctx context.Context) error {
	msgs := make([]bus.Msg, len(p.messages))
	for i, m := range p.messages {
		var err error
		if msgs[i], err = ingestMessage(stamp(m, p.round)); err != nil {
			return err
		}
	}
	_, err := timed(p, opPublish, func() (struct{}, error) { return struct{}{}, errors.Join(p.bus.PublishAll(ctx, msgs)...) })
	return err
}

func ingestMessage(m *event.Message) (bus.Msg, error) {
	data, err := event.Encode(m)
	if err != nil {
		return bus.Msg{}, fmt.Errorf("encode message: %w", err)
	}
	return bus.Msg{Subject: bus.IngestSubject(m.Tenant, m.SKey), ID: m.UID, Data: data}, nil
}

// hops measures the ways between two processes, one message at a time.
func (e *engine) hops(ctx context.Context, d time.Duration) ([]operation, error) {
	each := d / 4
	var ops []operation
	for _, hop := range []struct {
		name    string
		measure func(context.Context, time.Duration) ([]time.Duration, error)
	}{
		{hopHTTP, httpHop},
		{hopIngest, e.ingestHop},
		{hopRun, e.runHop},
		{hopOut, e.outHop},
	} {
		took, err := hop.measure(ctx, each)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", hop.name, err)
		}
		ops = append(ops, newOperation(hop.name, 1, took, total(took)))
	}
	return ops, nil
}

const arrivalTimeout = 5 * time.Second

// pingPong sends for d, each time after the arrival of the one before; send gets a number that never repeats. Warm-up
// is the first tenth.
func pingPong(ctx context.Context, d time.Duration, arrivals <-chan time.Time, send func(n int) error) ([]time.Duration, error) {
	var took []time.Duration
	begin := time.Now()
	for n := 0; time.Since(begin) < d; n++ {
		sent := time.Now()
		if err := send(n); err != nil {
			return nil, err
		}
		select {
		case at := <-arrivals:
			if sent.Sub(begin) > d/10 {
				took = append(took, at.Sub(sent))
			}
		case <-time.After(arrivalTimeout):
			return nil, errors.New("a message did not arrive")
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return took, nil
}

func httpHop(ctx context.Context, d time.Duration) (took []time.Duration, err error) {
	arrivals := make(chan time.Time, 1)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: arrivalTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a sender that is gone has no arrival
		arrivals <- time.Now()
		w.WriteHeader(http.StatusNoContent)
	})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // always ErrServerClosed after Close
	}()
	defer func() {
		err = errors.Join(err, server.Close())
		<-served
	}()
	client := &http.Client{Transport: &http.Transport{}, Timeout: arrivalTimeout}
	defer client.CloseIdleConnections()
	body := bytes.Repeat([]byte("x"), 512)
	return pingPong(ctx, d, arrivals, func(int) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+listener.Addr().String(), bytes.NewReader(body))
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

func (e *engine) ingestHop(ctx context.Context, d time.Duration) (took []time.Duration, err error) {
	m := newMessage("hop")
	partition := session.Partition(m.SKey)
	info, err := e.bus.LogInfo(ctx, partition)
	if err != nil {
		return nil, err
	}
	entries := make(chan bus.Entry, 1)
	reader, err := e.bus.ReadLog(ctx, partition, info.LastSeq+1, entries)
	if err != nil {
		return nil, err
	}
	arrivals := make(chan time.Time, 1)
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		for {
			select {
			case <-entries:
				arrivals <- time.Now()
			case <-reader.Broken():
				return
			}
		}
	}()
	defer func() {
		err = errors.Join(err, reader.Close())
		<-forwarded
	}()
	return pingPong(ctx, d, arrivals, func(n int) error {
		msg, err := ingestMessage(stamp(m, n))
		if err != nil {
			return err
		}
		_, err = e.bus.Publish(ctx, msg)
		return err
	})
}

func (e *engine) runHop(ctx context.Context, d time.Duration) ([]time.Duration, error) {
	return e.ringHop(ctx, d, bus.RunQueue(config.DefaultPool), bus.RunSubject(config.DefaultPool, newMessage("hop").SKey))
}

func (e *engine) outHop(ctx context.Context, d time.Duration) ([]time.Duration, error) {
	return e.ringHop(ctx, d, bus.OutQueue(webhook.Platform), bus.OutSubject(webhook.Platform, newMessage("hop").SKey))
}

// ringHop rings a doorbell until somebody who waits at the queue has it. Both kinds of doorbells are of about one size.
func (e *engine) ringHop(ctx context.Context, d time.Duration, q bus.Queue, subject string) ([]time.Duration, error) {
	worker, err := e.bus.Work(ctx, q)
	if err != nil {
		return nil, err
	}
	data, err := proto.Marshal(&runv1.Dispatch{Skey: newMessage("hop").SKey, Gen: 1, RunId: newID().String()})
	if err != nil {
		return nil, fmt.Errorf("encode doorbell: %w", err)
	}
	arrivals := make(chan time.Time, 1)
	fetching, stop := context.WithCancel(ctx)
	fetched := make(chan error, 1)
	go func() { fetched <- fetchAll(fetching, worker, arrivals) }()
	took, err := pingPong(ctx, d, arrivals, func(n int) error {
		_, err := e.bus.Publish(ctx, bus.Msg{Subject: subject, ID: fmt.Sprintf("%s:%d", newID(), n), Data: data})
		return err
	})
	stop()
	return took, errors.Join(err, <-fetched)
}

// fetchAll tells when doorbells come, until ctx ends.
func fetchAll(ctx context.Context, worker bus.Worker, arrivals chan<- time.Time) error {
	const limit = 256
	for ctx.Err() == nil {
		works, err := worker.Fetch(ctx, limit, time.Second)
		at := time.Now()
		if err != nil && ctx.Err() == nil {
			return err
		}
		for _, w := range works {
			if err := w.Ack(); err != nil {
				return err
			}
			arrivals <- at
		}
	}
	return nil
}
