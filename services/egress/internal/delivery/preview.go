package delivery

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
)

// previewer is the sender of j where its chat may have been shown the run while it was being written.
func (j *job) previewer() channel.Previewer {
	if j.RunID == uuid.Nil || j.SentParts > 0 {
		return nil
	}
	p, _ := j.lane.sender.(channel.Previewer)
	return p
}

// shown ends the preview of the run and returns the message that shows it, "" if there is none. Nothing is shown from
// then on: the run has ended before its reply was written, and no preview begins after that.
func (d *Deliverer) shown(ctx context.Context, j *job) (string, error) {
	if j.previewer() == nil {
		return "", nil
	}
	if id := d.stopPreview(ctx, j); id != "" {
		return id, nil
	}
	ids, err := d.previews(ctx, j)
	if err != nil || len(ids) == 0 {
		return "", err
	}
	return ids[len(ids)-1], nil
}

func (d *Deliverer) previews(ctx context.Context, j *job) (ids []string, err error) {
	err = d.persist(ctx, j.held.Add(sendStart), func(ctx context.Context) (err error) {
		ids, err = d.deps.Outbox.Previews(ctx, j.SKey, j.RunID)
		return err // wrapped below
	})
	if err != nil {
		return nil, fmt.Errorf("read previews: %w", err)
	}
	return ids, nil
}

// stopPreview asks the process that shows the run to stop, and returns the message that it has shown. No answer is "":
// the process is gone, or nobody shows the run.
func (d *Deliverer) stopPreview(ctx context.Context, j *job) string {
	if d.deps.Previews == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.PreviewStop)
	defer cancel()
	id, err := d.requestStop(ctx, j)
	if err != nil {
		d.deps.Logger.DebugContext(ctx, "preview not stopped", "skey", j.SKey, "run_id", j.runID(), "err", err)
	}
	return id
}

func (d *Deliverer) requestStop(ctx context.Context, j *job) (string, error) {
	holder, err := d.deps.Previews.PreviewHolder(ctx, j.SKey)
	if err != nil || holder == "" {
		return "", err // logged by the caller
	}
	data, err := proto.Marshal(&deliveryv1.PreviewStop{Skey: j.SKey, RunId: j.runID()})
	if err != nil {
		return "", fmt.Errorf("encode preview stop: %w", err)
	}
	answer, err := d.deps.Bus.Request(ctx, bus.Msg{Subject: bus.PreviewSubject(holder), Data: data})
	if err != nil {
		return "", err // says whom it asked
	}
	var stopped deliveryv1.PreviewStopped
	if err := proto.Unmarshal(answer.Data, &stopped); err != nil {
		return "", fmt.Errorf("decode preview stopped: %w", err)
	}
	return stopped.GetPlatformId(), nil
}

// clearPreviews deletes the messages that showed the run but for keep, which the reply replaces, and forgets all of them:
// from here on the stored plan names keep. A later row of the run must not replace it again.
func (d *Deliverer) clearPreviews(ctx context.Context, j *job, keep string) (verdict, bool) {
	if j.previewer() == nil {
		return verdict{}, true
	}
	ids, err := d.previews(ctx, j)
	if err != nil {
		return dropped(err), false
	}
	for _, id := range ids {
		if id == keep {
			continue
		}
		if v, ok := d.deletePreview(ctx, j, id); !ok {
			return v, false
		}
	}
	if len(ids) > 0 {
		err = withTimeout(ctx, func(ctx context.Context) error {
			return d.deps.Outbox.ForgetPreviews(ctx, j.SKey, j.RunID) // logged below
		})
	}
	if err != nil {
		d.deps.Logger.WarnContext(ctx, "previews not forgotten", "skey", j.SKey, "run_id", j.runID(), "err", err)
	}
	return verdict{}, true
}

// deletePreview tries once. Only a platform that asks for time puts the row off: the reply could not go now either.
func (d *Deliverer) deletePreview(ctx context.Context, j *job, id string) (verdict, bool) {
	if v, ok := d.admit(ctx, j); !ok {
		return v, false
	}
	sendCtx, cancel := context.WithTimeout(ctx, d.cfg.SendTimeout)
	defer cancel()
	err := j.previewer().DeletePreview(sendCtx, j.target, id)
	if err == nil {
		return verdict{}, true
	}
	d.gate.Freeze(ctx, j.lane.sender, j.target, err)
	if e, ok := errors.AsType[*channel.SendError](err); ok && e.RetryAfter > 0 {
		return putOff(min(e.RetryAfter, maxRetryAfter), err), false
	}
	d.deps.Logger.WarnContext(ctx, "preview not deleted", "skey", j.SKey, "run_id", j.runID(), "err", err)
	return verdict{}, true
}

// plan stores how the reply is cut and which message its first part replaces, before anything is sent: every try sends
// the same, whoever makes it.
func (d *Deliverer) plan(ctx context.Context, j *job, parts []channel.Part) (verdict, bool) {
	if j.Plan == nil {
		shown, err := d.shown(ctx, j)
		if err != nil {
			return dropped(err), false
		}
		if len(parts) == 0 {
			return d.clearPreviews(ctx, j, "") // an empty reply leaves nothing behind
		}
		if shown != "" {
			parts[0].EditOf = shown
		}
		if len(parts) > 1 || shown != "" {
			if v, ok := d.record(ctx, j, channel.EncodeParts(parts...)); !ok {
				return v, false
			}
		}
	}
	if parts[0].EditOf == "" {
		return verdict{}, true
	}
	return d.clearPreviews(ctx, j, parts[0].EditOf)
}
