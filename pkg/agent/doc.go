// Package agent is the ReAct loop: reason, act, observe, until there is an answer.
//
// A [Loop] is a harness around a stateless model: it builds each request from history, runs the tools that the model
// asks for, and repairs what models and tools get wrong. It knows no bus, store, lease or platform. What has to survive
// a crash goes through the [Journal], what others want to see goes to the [Observer]; typing indicators, metrics of the
// engine and delivery are subscribers, never part of the loop.
//
//	         ┌───────────────── results ─────────────────┐
//	         ▼                                            │
//	──► request ──► model ──► tool calls? ──yes──► checkpoint ──► tools
//	                             │ no
//	                             ▼
//	                          answer
//
// Guarantees:
//   - A tool that is not read-only starts only after its intent is checkpointed. The result of an unsafe tool is
//     checkpointed before anything else happens.
//   - Every call is paired with one result, in every request and in what is stored.
//   - A run goes on from what an earlier attempt stored: read-only and idempotent calls without result are executed again
//     under the same idempotency key, unsafe ones never are.
//   - A question to the user ([AskUser]) suspends the run. No call behind it starts before there is an answer, whoever goes on.
//   - What is added while the run works stands between two steps, never between a call and its result.
//   - An error of the journal ends the loop at once, with no further effect.
//
// A Loop is immutable and safe for concurrent use; a [Run] belongs to one call of [Loop.Run].
package agent
