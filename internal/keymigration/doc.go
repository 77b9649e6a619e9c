// Package keymigration claims a message under two keys while the recipe of its key changes (docs/adr/0014).
//
// Workers with the old recipe know the previous key only. After the migration only the new key is left. A worker that knows
// both runs a message only while it holds both records, so it excludes workers that know either key. It completes the new
// key's record only after the previous key's, and acks a delivery only when both are terminal. Handlers, downstreams and
// dead letters see the previous key.
//
// [New] wraps a store. Claims and holds without a new key pass unchanged.
package keymigration
