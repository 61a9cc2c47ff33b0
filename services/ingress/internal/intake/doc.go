// Package intake turns what adapters read into messages of the engine and has them accepted (T0). It is the same for all
// platforms: aliases, the allow-list, albums, identities, and the account of what is ignored.
//
// [Intake.Take] returns nil when the platform may be told that the event has arrived: it is stored, or it will never
// be. Until then nothing is acknowledged. Safe for concurrent use.
package intake
