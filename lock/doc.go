// Package lock is a fenced lock on any record store: one holder at a time, across processes and hosts.
//
// A lock is a record that is never completed (protocol section 9). Its holder keeps it by a lease, which is extended in
// the background; when the holder dies or stalls for longer than the lease, the next one takes it over.
//
// No lock alone keeps a stalled holder from acting after its lease: by the time it writes, another holder may have the
// lock. The lock is therefore advisory, unless what it protects compares the fencing token, which grows with every
// holder. [Held.Token] is that number, [Guard] and [Held.Header] are ready-made ways to spend it.
package lock
