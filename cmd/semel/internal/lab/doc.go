// Package lab runs scenarios: real worker processes, a real queue, planned faults, and a verdict that comes from a
// ledger which knows nothing of semel's records.
//
// A [Scenario] is data: the load, the work, the workers, the kills, and what is expected with the guard off and on.
// [Scenario.Plan] turns it into a schedule that is a pure function of the seed. The runner starts the workers as
// processes of the own binary ([WorkerMain]), sends the load, restarts what dies, waits until the queue is empty, and
// then reads the ledger with plain SQL. The workers write what happens to them as JSON lines; [WriteReport] draws them.
//
// # Steps
//
// A kill happens at a named protocol [Step]: the worker's queue and store are decorated, and at the planned passage the
// process sends SIGKILL to itself, so that no deferred function, no flush and no goodbye runs. The parent kills from
// outside as well, at moments that nobody chose.
package lab
