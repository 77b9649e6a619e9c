// Package load is the load test of the command line: it sends messages to a queue of its own, has worker processes of the
// own binary consume them, and counts afterwards what came of it: from a ledger that the handlers write, from the events
// of the workers, and from their logs. Run leaves neither process nor queue behind.
package load
