// Package operatorapi is what people on call do by hand: look at sessions, workers, held partitions and dead letters,
// pause and resume a session, kill a run, drain a worker, choose what happens to a held partition, replay a dead letter.
//
// Everything here needs the role admin. Sessions are named by their skey, as in logs and metrics: their keys hold names of
// people.
package operatorapi
