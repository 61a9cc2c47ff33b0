package admission

import (
	"context"

	"github.com/hermes-runtime/hermes/pkg/store"
)

const (
	// maxBatch bounds the messages of one admission, maxBatchBytes their size: a statement has only seconds.
	maxBatch      = 256
	maxBatchBytes = 8 << 20
)

// run admits what queued up, one batch after the other.
func (a *Admitter) run(ctx context.Context) {
	defer func() { leave(a.carry, context.Cause(ctx)) }()
	for {
		batch := a.next(ctx)
		if len(batch) == 0 {
			return
		}
		a.turn <- struct{}{}
		batch, a.carry = cut(batch)
		proceed := a.admit(ctx, batch)
		<-a.turn
		if !proceed {
			return
		}
	}
}

// next waits for one entry and takes what else is there, without waiting. Empty: ctx ended.
func (a *Admitter) next(ctx context.Context) []*candidate {
	batch := a.carry
	if len(batch) == 0 {
		select {
		case d := <-a.queue:
			batch = append(batch, a.candidate(ctx, d))
		case <-ctx.Done():
			return nil
		}
	}
	size := 0
	for _, c := range batch {
		size += len(c.Data)
	}
	for len(batch) < maxBatch && size < maxBatchBytes {
		select {
		case d := <-a.queue:
			batch = append(batch, a.candidate(ctx, d))
			size += len(d.Data)
		default:
			return batch
		}
	}
	return batch
}

// cut splits a batch before the first message whose treatment reads the store and whose session has an earlier message in
// it, which the store has to know by then.
func cut(batch []*candidate) (now, later []*candidate) {
	seen := make(map[string]struct{}, len(batch))
	for i, c := range batch {
		if c.event == nil {
			continue
		}
		if _, before := seen[c.event.SKey]; before && c.treatment.reads {
			return batch[:i:i], batch[i:]
		}
		seen[c.event.SKey] = struct{}{}
	}
	return batch, nil
}

// live drops the candidates whose attachment has ended: somebody reads them again.
func live(batch []*candidate) []*candidate {
	kept := make([]*candidate, 0, len(batch))
	for _, c := range batch {
		if c.from.ended() {
			c.end(errDropped)
			continue
		}
		kept = append(kept, c)
	}
	return kept
}

// admission builds the transaction: the offset of each partition moves from where its attachment stands to its last
// entry in the batch.
func admission(batch []*candidate) store.Admission {
	var adm store.Admission
	move := make(map[*attachment]int)
	for _, c := range batch {
		i, known := move[c.from]
		if !known {
			i = len(adm.Offsets)
			move[c.from] = i
			adm.Offsets = append(adm.Offsets, store.OffsetMove{Partition: c.from.partition, From: c.from.position.Load()})
		}
		adm.Offsets[i].To, adm.Offsets[i].UID = int64(c.Seq), rowText(c.ID)
		switch {
		case c.dead != nil:
			adm.Dead = append(adm.Dead, *c.dead)
		case c.ignored == "":
			adm.Messages = append(adm.Messages, c.row)
		}
	}
	return adm
}
