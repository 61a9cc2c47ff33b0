// Package sweep finds what was left behind by processes that died, doorbells that were lost and times that have come.
//
// RUN and OUT are doorbells whose whole content can be rebuilt from the store, and every step of a run that may be
// interrupted can be taken up from there. Every router sweeps its own partitions once a second, rule by rule:
//
//	(a) queued      runs that no worker has taken            rung again
//	(b) running     runs whose owner is gone                 taken over
//	(c) waiting     sessions whose time has come             queued
//	(d) deliveries  replies that nobody sends                rung again
//	(e) gaps        settled replies nobody has stepped over  stepped over
//	(f) stops       stopped runs that nobody has ended       ended
//	(g) timers      times that have come                     sent as messages
//	(h) frozen      database sessions of frozen processes    ended
//
// Rules do not depend on each other, and each is safe while another router applies it to the same partition: rings are
// numbered, and everything else is a compare-and-swap.
package sweep
