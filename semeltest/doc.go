// Package semeltest has the conformance suites for authors of adapters, and fakes that misbehave on purpose. It needs
// the standard library only.
//
// [RunStore], [RunQueue] and [RunPair] take a factory and test what the adapter declares. Features that it does not
// declare must return driver.ErrUnsupported. [RunStore] generates thousands of cells (state of the record × operation ×
// token × nonce × fingerprint × policy) and reaches each state by legal operations. It compares every result and the
// record afterwards with the driver's Decide functions (protocol section 2).
//
// The same suite runs on a store with an injected clock (StoreSetup.Advance) and on a real server. On a server it uses
// leases of a few milliseconds and waits for them.
//
// [FaultyStore] and [FaultyQueue] add faults to any adapter: lost responses, late writes, items with an unknown outcome
// and outages. The faults are seeded and repeatable.
package semeltest
