package bus

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/session"
)

// Streams of the engine. ING is split into several streams, see [IngestStream].
const (
	StreamIngest     = "ING"
	StreamRun        = "RUN"
	StreamOut        = "OUT"
	StreamEvents     = "EVT"
	StreamDeadLetter = "DLQ"
	// BucketObjects is the object store, BucketEngine the map in which routers keep what Postgres must not be the only
	// one to know.
	BucketObjects = "BLOB"
	BucketEngine  = "engine"
)

// IngestStream returns the stream that holds a partition when there are streams of them.
func IngestStream(partition, streams int) string {
	return StreamIngest + "_" + strconv.Itoa(partition%streams)
}

// Subject lists of the streams that are not split.
const (
	RunSubjects        = "run.*.*"
	OutSubjects        = "out.*.*"
	EventSubjects      = "evt.*.*.>"
	DeadLetterSubjects = "dlq.*.*"
)

// IngestSubjects lists the subjects of the ingest stream number k of streams: all partitions with partition mod
// streams = k.
func IngestSubjects(k, streams int) []string {
	var subjects []string
	for p := k; p < session.Partitions; p += streams {
		subjects = append(subjects, IngestFilter(p))
	}
	return subjects
}

// CheckToken refuses a subject token that is empty or holds anything but [a-z0-9_-].
func CheckToken(name, token string) error {
	if token == "" {
		return fmt.Errorf("%s: must not be empty", name)
	}
	for i := range len(token) {
		c := token[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return fmt.Errorf("%s: %q holds %q, only a-z, 0-9, _ and - are allowed", name, token, c)
		}
	}
	return nil
}

// PartitionToken is the two-digit form of a partition.
func PartitionToken(partition int) string { return fmt.Sprintf("%02d", partition) }

func keyed(prefix, skey string) string {
	return prefix + "." + PartitionToken(session.Partition(skey)) + "." + skey
}

// IngestSubject carries accepted messages of one session.
func IngestSubject(tenant, skey string) string {
	return "ing." + PartitionToken(session.Partition(skey)) + "." + tenant + "." + skey
}

// IngestFilter matches all messages of a partition.
func IngestFilter(partition int) string { return "ing." + PartitionToken(partition) + ".>" }

// RunSubject carries doorbells for workers of a class.
func RunSubject(class, skey string) string {
	return "run." + class + "." + PartitionToken(session.Partition(skey))
}

// RunFilter matches all doorbells of a class.
func RunFilter(class string) string { return "run." + class + ".*" }

// OutSubject carries doorbells for the egress of a platform.
func OutSubject(platform, skey string) string {
	return "out." + platform + "." + PartitionToken(session.Partition(skey))
}

// OutFilter matches all doorbells of a platform.
func OutFilter(platform string) string { return "out." + platform + ".*" }

// EventSubject carries a lifecycle event.
func EventSubject(skey, eventType string) string { return keyed("evt", skey) + "." + eventType }

// EventFilter matches the lifecycle events of a type in a partition.
func EventFilter(partition int, eventType string) string {
	return "evt." + PartitionToken(partition) + ".*." + eventType
}

// ControlSubject wakes the worker that holds a run of the session.
func ControlSubject(skey string) string { return keyed("ctl", skey) }

// WorkerSubject addresses one worker process.
func WorkerSubject(workerID string) string { return "ctl.worker." + workerID }

// PreviewSubject addresses the egress process that shows runs while they are being written.
func PreviewSubject(egressID string) string { return "prev." + egressID }

// DeltaSubject carries the frames of a session's run.
func DeltaSubject(skey string) string { return keyed("dlt", skey) }

// SnapshotSubject asks for the frames so far.
func SnapshotSubject(skey string) string { return keyed("snap", skey) }

// DeadLetterSubject tells operators of a dead letter; kind is ingress, run or out.
func DeadLetterSubject(kind, name string) string { return "dlq." + kind + "." + name }

// PartitionOf returns the partition in a keyed subject (ing, evt, ctl, dlt, snap).
func PartitionOf(subject string) (int, error) {
	_, rest, _ := strings.Cut(subject, ".")
	token, _, _ := strings.Cut(rest, ".")
	p, err := strconv.Atoi(token)
	if err != nil || p < 0 || p >= session.Partitions {
		return 0, fmt.Errorf("subject %q names no partition", subject)
	}
	return p, nil
}

// SKeyOf returns the last token of a keyed subject (ing, ctl, dlt, snap).
func SKeyOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }
