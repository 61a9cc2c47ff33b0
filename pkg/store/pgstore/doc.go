// Package pgstore is the store on PostgreSQL 15 or newer, the product's backend of the store port.
//
// Each transaction of the engine is one statement, or one pipeline of statements (queries/), sent in one round trip;
// internal/dbgen is generated from them. There are two pools: T1, the claim of runs and the claim of deliveries do not
// wait for the disk (synchronous_commit=off); all other writes do, and WAL order makes what they build on durable with
// them. A method that returns store.ErrUnavailable has an unknown outcome and can be repeated.
//
// A Store is safe for concurrent use.
package pgstore
