// Package lab runs scenarios: real worker processes, a real queue, planned faults, and a verdict that comes from a
// ledger which knows nothing of semel's records.
//
// A scenario passes through the packages in this order:
//
//   - scenarios: the scenarios, as data: load, work, workers, faults, and what is expected with the guard off and on.
//   - plan: the schedule of one run, a pure function of scenario, seed and guard.
//   - crew: the parent. It sends the load, starts, kills, freezes and thaws worker processes, and waits until the queue is
//     empty.
//   - worker: a worker process of the own binary: semel, or a hand-written consumer with its hole. It kills itself at named
//     protocol steps, so that no deferred function and no flush runs. The seed decides which of its calls to queue and
//     store fail.
//   - place: queue, store, and the ledger next to them.
//   - eventlog: the events of every process, as JSON lines.
//   - verdict: the judgement by the ledger, and a timeline from the event logs.
//   - report: the timeline as text and as one HTML file.
//   - watch: the page of a run that a person watches and disturbs.
//
// The packages attack (faults for the user's own handler), sandbox (lab up) and preflight (lab validate) stand alone.
package lab
