// Package sweep rings again what was left behind: queued runs that no worker took and outbox rows that nobody sends.
//
// RUN and OUT are doorbells whose whole content can be rebuilt from the store. Every router sweeps its own partitions
// once a second; two sweepers of one partition only ring twice, and the broker drops the second ring of a number.
package sweep
