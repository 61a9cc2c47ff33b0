// Package partition decides which partitions of the log this router reads.
//
// Every router announces itself, sees who else lives and computes the same wish by rendezvous hashing: a partition
// belongs to the living router with the highest weight for it. So the partitions are spread evenly, and a router that
// comes or goes moves only its own share.
//
//	           Join            Own                     Disown
//	routers ──────────► wanted ─────► readers started; ───────► the new owner's next Own succeeds
//	                                  unwanted ones stopped
//
// Redis only hints. While it is down a router keeps the partitions that it has, and one that starts without Redis takes
// all of them. Two routers may then read one partition: both see its messages, and the compare-and-swap of the
// partition's offset lets one of them commit.
package partition
