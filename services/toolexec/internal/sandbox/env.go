//go:build !race

package sandbox

// childEnv is the environment of the processes that run this binary: empty, not nil, which would mean to inherit.
func childEnv() []string { return []string{} }
