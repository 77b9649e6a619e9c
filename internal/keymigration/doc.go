// Package keymigration claims a message under two keys while the recipe of its key changes (docs/adr/0014).
//
// The primary identity is the one of before: workers of the old version know no other. The mirror is the new one, which
// alone will be left. A worker that knows both runs a message only while it holds both records, so it excludes workers
// that know either; and it ends them so that the mirror is COMPLETED only when the primary is, and a delivery is acked
// only when both are terminal. Handlers, downstreams and dead letters see the primary.
//
// [New] wraps a store. Claims and holds without a mirror pass as they are.
package keymigration
