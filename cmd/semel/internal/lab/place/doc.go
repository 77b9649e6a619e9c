// Package place opens the place in which a run happens: a queue, a store, and next to them the ledger, which knows nothing
// of semel's records, and the marks that the unguarded designs keep.
package place
