// Package watch serves the page on which a person watches a run and disturbs it: lanes that grow, counters from the ledger,
// and buttons that kill, freeze, and cut off. It listens on the loopback interface alone, under a token that only the
// terminal shows.
package watch
