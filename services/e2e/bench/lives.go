package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/llm/demo"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore"
)

// positions returns the offset of every partition and creates those that are missing.
func positions(ctx context.Context, s store.Inbox) (map[int]int64, error) {
	all := make([]int, session.Partitions)
	for p := range all {
		all[p] = p
	}
	known, err := s.Offsets(ctx, all)
	if err != nil {
		return nil, err
	}
	at := map[int]int64{}
	for _, o := range known {
		at[o.Partition] = o.LastSeq
	}
	for _, p := range all {
		if _, ok := at[p]; ok {
			continue
		}
		if err := s.SetOffset(ctx, nil, store.Offset{Partition: p, Stream: "ING_0", StreamCreated: time.Now()}); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// party is sessions whose runs go through life together, by the operations that services use.
type party struct {
	*engine
	messages []*event.Message
	round    int
	took     map[string][]time.Duration
}

func (e *engine) newParty(name string, n int) *party {
	p := &party{engine: e, took: map[string][]time.Duration{}}
	for i := range n {
		p.messages = append(p.messages, newMessage(fmt.Sprintf("%s-%d", name, i)))
	}
	return p
}

// newMessage is what the door makes of a request.
func newMessage(chat string) *event.Message {
	src := session.Source{Platform: webhook.Platform, Account: channelName, ChatType: "dm", ChatID: chat, UserID: chat}
	key := session.Key(src, session.DefaultOptions())
	return &event.Message{
		Tenant: config.DefaultTenant, SessionKey: key, SKey: session.SKey(config.DefaultTenant, key),
		Profile: config.DefaultProfile, RunClass: config.DefaultPool, Kind: event.KindMessage, Source: src,
		ReplyTo: event.Address{Platform: webhook.Platform, Account: channelName, ChatID: chat},
		Text:    "Good morning, this is message " + chat,
	}
}

// stamp makes the next message of a chat.
func stamp(m *event.Message, round int) *event.Message {
	next := *m
	next.PlatformMessageID = fmt.Sprintf("%s-%d", m.Source.ChatID, round)
	next.UID = event.UID(m.Tenant, m.Source, next.PlatformMessageID, m.Kind, "")
	next.ReceivedAt = time.Now().UTC()
	return &next
}

// timed measures one call.
func timed[R any](p *party, name string, call func() (R, error)) (R, error) {
	begin := time.Now()
	result, err := call()
	p.took[name] = append(p.took[name], time.Since(begin))
	if err != nil {
		return result, fmt.Errorf("%s: %w", name, err)
	}
	return result, nil
}

// expect fails unless a call has done its work for everybody.
func expect(name string, got, want int) error {
	if got != want {
		return fmt.Errorf("%s: done for %d of %d", name, got, want)
	}
	return nil
}

// live takes every session through one turn.
func (p *party) live(ctx context.Context) error {
	admitted, err := p.admit(ctx)
	if err != nil {
		return err
	}
	if err := p.lease(ctx, opReserve, admitted, lease.RouterHolder("bench"), p.leases.Reserve); err != nil {
		return err
	}
	requests := p.requests(admitted)
	if err := p.lease(ctx, opAcquire, admitted, "bench/0", p.leases.Acquire); err != nil {
		return err
	}
	claimed, err := p.claim(ctx, requests)
	if err != nil {
		return err
	}
	if err := p.renew(ctx, admitted); err != nil {
		return err
	}
	finished, err := p.finish(ctx, claimed)
	if err != nil {
		return err
	}
	if err := p.release(ctx, admitted); err != nil {
		return err
	}
	return p.deliver(ctx, claimed, finished)
}

// admit is T1 of one message for each session.
func (p *party) admit(ctx context.Context) ([]store.Admitted, error) {
	p.round++
	adm, err := p.admission()
	if err != nil {
		return nil, err
	}
	admitted, err := timed(p, opAdmit, func() ([]store.Admitted, error) { return p.store.Admit(ctx, adm) })
	if err != nil {
		return nil, err
	}
	for _, move := range adm.Offsets {
		p.positions[move.Partition] = move.To
	}
	created := 0
	for _, a := range admitted {
		if a.Created {
			created++
		}
	}
	return admitted, expect(opAdmit, created, len(p.messages))
}

func (p *party) admission() (adm store.Admission, err error) {
	moves := map[int]store.OffsetMove{}
	for _, m := range p.messages {
		m = stamp(m, p.round)
		body, err := json.Marshal(m)
		if err != nil {
			return adm, fmt.Errorf("encode message: %w", err)
		}
		partition := session.Partition(m.SKey)
		move, ok := moves[partition]
		if !ok {
			at := p.positions[partition]
			move = store.OffsetMove{Partition: partition, From: at, To: at}
		}
		move.To++
		move.UID = m.UID
		moves[partition] = move
		adm.Messages = append(adm.Messages, store.AdmitMessage{
			SKey: m.SKey, Tenant: m.Tenant, SessionKey: m.SessionKey, AgentID: m.Profile, RunClass: m.RunClass, UID: m.UID,
			Kind: store.KindUser, Body: body, StreamSeq: move.To, SessionID: newID(), RunID: newID(), WantsRun: true,
		})
	}
	for _, move := range moves {
		adm.Offsets = append(adm.Offsets, move)
	}
	return adm, nil
}

// newID: a random source that fails ends the program anyway.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// leasesOf are the leases of the runs of the sessions.
func (p *party) leasesOf(admitted []store.Admitted, holder string) []lease.Lease {
	leases := make([]lease.Lease, len(admitted))
	for i, a := range admitted {
		leases[i] = lease.Lease{SKey: p.messages[i].SKey, Gen: a.Gen, RunID: a.RunID.String(), Holder: holder}
	}
	return leases
}

func (p *party) lease(ctx context.Context, name string, admitted []store.Admitted, holder string,
	call func(context.Context, []lease.Lease) ([]lease.Grant, error),
) error {
	leases := p.leasesOf(admitted, holder)
	grants, err := timed(p, name, func() ([]lease.Grant, error) { return call(ctx, leases) })
	if err != nil {
		return err
	}
	granted := 0
	for _, g := range grants {
		if g.OK {
			granted++
		}
	}
	return expect(name, granted, len(leases))
}

func (p *party) renew(ctx context.Context, admitted []store.Admitted) error {
	leases := p.leasesOf(admitted, "bench/0")
	renewed, err := timed(p, opRenew, func() ([]lease.Renewed, error) { return p.leases.Renew(ctx, leases) })
	if err != nil {
		return err
	}
	held := 0
	for _, r := range renewed {
		if r == lease.Held {
			held++
		}
	}
	return expect(opRenew, held, len(leases))
}

func (p *party) release(ctx context.Context, admitted []store.Admitted) error {
	leases := p.leasesOf(admitted, "bench/0")
	_, err := timed(p, opRelease, func() (struct{}, error) { return struct{}{}, p.leases.Release(ctx, leases) })
	return err
}

func (p *party) requests(admitted []store.Admitted) []store.ClaimRequest {
	requests := make([]store.ClaimRequest, len(admitted))
	for i, a := range admitted {
		requests[i].Fence = store.Fence{SKey: p.messages[i].SKey, Gen: a.Gen, RunID: a.RunID, Owner: "bench/" + uuid.NewString()}
	}
	return requests
}

// claim is T2.3 with the reads that ride along.
func (p *party) claim(ctx context.Context, requests []store.ClaimRequest) ([]store.Claimed, error) {
	claimed, err := timed(p, opClaim, func() ([]store.Claimed, error) { return p.store.Claim(ctx, requests) })
	if err != nil {
		return nil, err
	}
	return claimed, expect(opClaim, len(claimed), len(requests))
}

func (p *party) finish(ctx context.Context, claimed []store.Claimed) ([]store.FinishResult, error) {
	fins, err := finishesOf(ctx, claimed)
	if err != nil {
		return nil, err
	}
	results, err := timed(p, opFinish, func() ([]store.FinishResult, error) { return p.store.Finish(ctx, fins) })
	if err != nil {
		return nil, err
	}
	return results, expect(opFinish, countFinished(results), len(fins))
}

func countFinished(results []store.FinishResult) int {
	done := 0
	for _, r := range results {
		if r.Outcome == store.Finished && r.Known {
			done++
		}
	}
	return done
}

// finishesOf are what the worker stores at the end of a turn of the demo model.
func finishesOf(ctx context.Context, claimed []store.Claimed) ([]store.Finish, error) {
	fins := make([]store.Finish, len(claimed))
	for i, c := range claimed {
		var err error
		if fins[i], err = finishOf(ctx, c); err != nil {
			return nil, err
		}
	}
	return fins, nil
}

func finishOf(ctx context.Context, c store.Claimed) (store.Finish, error) {
	if len(c.Inbox) != 1 {
		return store.Finish{}, fmt.Errorf("claimed %d messages, want 1", len(c.Inbox))
	}
	var asked event.Message
	if err := json.Unmarshal(c.Inbox[0].Body, &asked); err != nil {
		return store.Finish{}, fmt.Errorf("decode message: %w", err)
	}
	question := llm.Message{Role: llm.User, Text: asked.Text}
	answer, err := demo.New().Generate(ctx, llm.Request{Messages: []llm.Message{question}}, nil)
	if err != nil {
		return store.Finish{}, fmt.Errorf("ask the model: %w", err)
	}
	user, errUser := json.Marshal(question)
	assistant, errAssistant := json.Marshal(answer.Message)
	target, errTarget := json.Marshal(asked.ReplyTo)
	usage, errUsage := json.Marshal(answer.Usage)
	seq := c.Inbox[0].Seq
	return store.Finish{
		Fence: c.Fence, RunGen: c.FirstGen, From: c.DoneSeq + 1, To: seq, State: store.RunDone, Usage: usage, NextRunID: newID(),
		Messages: []store.Message{
			{RunGen: c.FirstGen, N: 1, RunID: c.RunID, Role: string(llm.User), Content: user, InboxSeq: seq},
			{RunGen: c.FirstGen, N: 2, RunID: c.RunID, Role: string(llm.Assistant), Content: assistant},
		},
		Replies: []store.NewReply{{
			Platform: webhook.Platform, Target: target, Parts: channel.EncodeParts(channel.Part{Markdown: answer.Message.Text}),
		}},
	}, errors.Join(errUser, errAssistant, errTarget, errUsage)
}

// deliver is T8 without the sending.
func (p *party) deliver(ctx context.Context, claimed []store.Claimed, finished []store.FinishResult) error {
	claims := make([]store.DeliveryClaim, len(claimed))
	marks := make([]store.Mark, len(claimed))
	for i, c := range claimed {
		claims[i] = store.DeliveryClaim{SKey: c.SKey, OutSeq: finished[i].FirstOut}
		marks[i] = store.Mark{SKey: c.SKey, OutSeq: finished[i].FirstOut, State: store.OutSent, PlatformIDs: json.RawMessage(`["1"]`)}
	}
	sender := "bench/" + uuid.NewString()
	taken, err := timed(p, opTake, func() ([]store.Delivery, error) { return p.store.ClaimDeliveries(ctx, sender, claims) })
	if err := errors.Join(err, expect(opTake, len(taken), len(claims))); err != nil {
		return err
	}
	marked, err := timed(p, opMark, func() ([]store.Marked, error) { return p.store.MarkDeliveries(ctx, marks) })
	return errors.Join(err, expect(opMark, len(marked), len(marks)))
}

// batches repeats the lives of n sessions for d.
func (e *engine) batches(ctx context.Context, n int, d time.Duration) ([]operation, error) {
	p := e.newParty(fmt.Sprintf("batch-%d", n), n)
	if err := p.live(ctx); err != nil { // not measured: the sessions are created
		return nil, err
	}
	clear(p.took)
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := errors.Join(p.live(ctx), p.publish(ctx)); err != nil {
			return nil, err
		}
	}
	var ops []operation
	for _, name := range []string{
		opPublish, opAdmit, opReserve, opAcquire, opClaim, opRenew, opFinish, opRelease, opTake, opMark,
	} {
		ops = append(ops, newOperation(name, n, p.took[name], total(p.took[name])))
	}
	return ops, nil
}

// newOperation: calls over size items each took wall time together.
func newOperation(name string, size int, calls []time.Duration, wall time.Duration) operation {
	return operation{Name: name, Size: size, Call: summarise(calls), PerSec: per(float64(len(calls)*size), wall.Seconds())}
}

func total(all []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	return sum
}

const (
	// runsPerRound bounds the runs that are made ready for a round of finishes, runsPerConnection says how many each
	// connection gets.
	runsPerRound      = 2048
	runsPerConnection = 64
	admitBatch        = 256
)

// finishes ends runs one by one from n connections at once, for about d.
func (e *engine) finishes(ctx context.Context, url string, n int, d time.Duration) (operation, error) {
	target, err := pgstore.Open(ctx, pgstore.Config{URL: url, Connections: n})
	if err != nil {
		return operation{}, err
	}
	defer target.Close()
	var calls []time.Duration
	var wall time.Duration
	for round := 0; wall < d; round++ {
		fins, err := e.running(ctx, fmt.Sprintf("finish-%d-%d", n, round), min(n*runsPerConnection, runsPerRound))
		if err != nil {
			return operation{}, err
		}
		begin := time.Now()
		took, err := finishAll(ctx, target, fins, n)
		wall += time.Since(begin)
		if err != nil {
			return operation{}, err
		}
		calls = append(calls, took...)
	}
	op := newOperation(opFinish, n, calls, wall)
	op.PerSec = per(float64(len(calls)), wall.Seconds())
	return op, nil
}

// running makes n runs that only have to be finished.
func (e *engine) running(ctx context.Context, name string, n int) ([]store.Finish, error) {
	var fins []store.Finish
	for part := range slices.Chunk(make([]struct{}, n), admitBatch) {
		p := e.newParty(fmt.Sprintf("%s-%d", name, len(fins)), len(part))
		admitted, err := p.admit(ctx)
		if err != nil {
			return nil, err
		}
		claimed, err := p.claim(ctx, p.requests(admitted))
		if err != nil {
			return nil, err
		}
		more, err := finishesOf(ctx, claimed)
		if err != nil {
			return nil, err
		}
		fins = append(fins, more...)
	}
	return fins, nil
}

func finishAll(ctx context.Context, target *pgstore.Store, fins []store.Finish, connections int) ([]time.Duration, error) {
	took := make([]time.Duration, len(fins))
	errs := make([]error, connections)
	var next atomic.Int64
	var wg sync.WaitGroup
	for c := range connections {
		wg.Go(func() {
			for errs[c] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(fins) {
					return
				}
				took[i], errs[c] = finishOne(ctx, target, fins[i])
			}
		})
	}
	wg.Wait()
	return took, errors.Join(errs...)
}

func finishOne(ctx context.Context, target *pgstore.Store, f store.Finish) (time.Duration, error) {
	begin := time.Now()
	results, err := target.Finish(ctx, []store.Finish{f})
	took := time.Since(begin)
	if err != nil {
		return took, err
	}
	return took, expect(opFinish, countFinished(results), 1)
}
