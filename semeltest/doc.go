// Package semeltest has the conformance suites for authors of adapters, and fakes that misbehave on purpose. It needs
// the standard library only.
//
// [RunStore], [RunQueue] and [RunPair] take a factory and test what the adapter declares; what it does not declare must
// answer driver.ErrUnsupported. [RunStore] generates thousands of cells (state of the record × operation × token ×
// nonce × fingerprint × policy), reaches each state by legal operations, and compares every answer and the record
// afterwards with the driver's Decide functions (protocol section 2).
//
// The same suite runs on a store with an injected clock (StoreSetup.Advance) and on a real server, where it uses leases
// of some milliseconds and waits for them.
//
// [FaultyStore] and [FaultyQueue] decorate any adapter with lost answers, late writes, per-item doubts and outages,
// seeded and repeatable.
package semeltest
