// Package lab runs scenarios: real worker processes, a real queue, planned faults, and a verdict that comes from a
// ledger which knows nothing of semel's records.
//
// A scenario passes through the folders in this order:
//
//   - catalogue: the scenarios, as data: load, work, workers, faults, and what is expected with the guard off and on.
//   - plan: the schedule of one run, a pure function of scenario, seed and guard.
//   - play: the parent. It sends the load, keeps worker processes alive, strikes them from outside, and waits until the
//     queue is empty.
//   - worker: a worker process of the own binary: semel, or a hand-written consumer with its hole. It is killed at named
//     protocol steps, by its own hand, so that no deferred function, no flush and no goodbye runs; and what goes wrong
//     between it and its queue and store is drawn by the seed.
//   - rig: the place: queue, store, and the ledger beside them.
//   - trail: what every process writes of itself, as JSON lines.
//   - verdict: what the ledger says, and the story that the trails tell.
//   - report: the story as text and as one HTML file.
package lab
