// Package session says who is talking and which key serialises them.
//
// A [Source] describes one speaker in one place. [Key] turns it into the session key, the address that routing,
// ordering, concurrency control, caching and history hang on. [SKey] is the hashed form of (tenant, session key): the
// only form that may appear in bus subjects, lease keys and table keys. [Partition] maps an skey to one of
// [Partitions] fixed partitions.
//
// All functions are pure and safe for concurrent use.
package session
