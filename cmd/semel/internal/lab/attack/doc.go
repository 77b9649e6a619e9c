// Package attack runs the schedules of semeltest/verify with real processes: the user's own handler, a program or an HTTP
// endpoint, under semel work. verify judges what came of them; this package starts, kills, counts and prints.
//
//   - attacks.go: which schedules, and with what; scripts.go: how each is run.
//   - service.go: a service that takes the handler's effects over HTTP, keeps count, and misbehaves on request.
//   - proxy.go: sits in front of a handler that is an HTTP endpoint, and loses requests and responses.
//   - shim.go: runs in front of a handler that is a program, records its process, and holds it before or after its run.
//   - journal.go: what the handler's own journal has.
//   - trial.go, process.go, hold.go: one attack: its queue, its worker processes.
//   - observe.go: what they left, for the judge; report.go: the report as text.
package attack
