// Package worker is a worker process of the lab: semel, or one of the consumers that people write by hand, between a
// queue and a database in which things go wrong as planned.
//
// A message passes here in the order of the files: place, faults (what goes wrong between worker and place),
// gate (where a process is struck), guarded or off_* (the consumer), order (the work).
package worker
