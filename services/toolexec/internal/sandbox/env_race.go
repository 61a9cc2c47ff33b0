//go:build race

package sandbox

// childEnv keeps the race detector's runtime from sleeping for a second at the exit of every tool process.
func childEnv() []string { return []string{"GORACE=atexit_sleep_ms=0"} }
