// Package lock is a fenced lock on any record store: one holder at a time, across processes and hosts.
//
// A lock is a record that is never completed (protocol section 9). Its holder keeps it by a lease, which is extended in
// the background. If the holder dies or stalls for longer than the lease, the next one takes it over.
//
// No lock alone stops a stalled holder after its lease: when it writes, another holder may have the lock. So the lock
// is advisory, unless the protected resource compares the fencing token, which grows with every holder. [Held.Token] is
// that number; [Guard] and [Held.Header] are ready-made ways to use it.
package lock
