// Package app wires a worker: slots, runtime, committer, control and streams over the backends of its process.
package app
