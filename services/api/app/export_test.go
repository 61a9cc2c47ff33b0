package app

// NewWithTiming is New for tests that do not want to wait.
var NewWithTiming = build
