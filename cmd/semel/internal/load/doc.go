// Package load is the load test of the command line. It sends messages to a queue of its own, lets worker processes of
// its own binary consume them, and counts the results: from a ledger that the handlers write, from the events of the
// workers, and from their logs. Run leaves neither process nor queue behind.
package load
