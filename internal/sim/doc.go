// Package sim is the deterministic simulator of the engine: it runs internal/machine, the very code that runs in
// production, against a modelled store, queue and outside world in virtual time, injects faults, and checks the
// invariants of protocol section 11 after every step. One seed is one schedule: the same seed gives the same history,
// byte for byte, so that a violation is reproduced by its number.
//
// The model's store decides with driver.Decide*, as every adapter has to. The model is hostile within the contract:
// requests are lost, applied with the response lost, or applied long after their sender gave up or died; deliveries are
// duplicated, stale receipts are accepted or refused; workers crash before and after every operation, stall past
// their leases, are drained and restarted with another policy; the store goes down, its clock jumps, and in some
// schedules it loses a suffix of its writes.
//
// A checker that finds nothing proves nothing: mutants are known ways to get the protocol wrong (section 12), planted
// between the machine and the model or in the model, never in the machine, and each has to be found.
//
// The kernel is internal/virtual: time, events, random choice, the history, and the search over schedules. The relays of an
// outbox are a simulation of their own on the same kernel, package saga one of steps.
//
// Reading order: sim.go (what to call), scenario.go (what a seed draws), simulation.go (the loop and its events), worker.go (the
// shell around the machine), run.go (handlers and the outside world), store.go and tx.go, queue.go, operator.go, faults.go,
// check.go and final.go (the invariants), decide.go and mutant.go (what is planted). Then outbox.go, outbox_relay.go,
// outbox_model.go, outbox_faults.go, outbox_check.go.
package sim
