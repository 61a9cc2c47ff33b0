// Package slot fills the slots of a worker with runs.
//
//	RUN doorbell ─► lease ─► listen ─► claim ─► ack ─► run ─► next run of the session, up to 8 in a row
//	                  │ held     │ error  │ lost                └─► doorbell for another worker
//	                  ▼          ▼        ▼
//	             ack, drop     nak     release, ack
//
// A doorbell is a hint and may come twice; the claim, a compare-and-swap in the store, decides who runs. The lease
// before it saves the losers their work and is itself only a hint: without Redis runs are claimed without lease.
// Messages are pulled only while slots are free. Each run has one goroutine, and leases, claims and signals of all runs
// are served by a fixed number of loops. A worker that goes away hands its runs over, see [Puller.Stop].
//
// A lease that Redis has forgotten is never taken again as it was: the store gives its run the next generation, and the
// lease is taken under that. Without Redis the store confirms the runs in hand, see package control.
package slot
