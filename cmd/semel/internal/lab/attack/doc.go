// Package attack runs the user's own handler under planned faults, and reports which of its effects would happen twice or
// be lost, and how to fix it.
//
//   - attacks.go: the attacks, as data; scripts.go: what each of them does.
//   - service.go: a service that takes the handler's effects over HTTP, keeps count, and misbehaves on request.
//   - proxy.go: sits in front of a handler that is an HTTP endpoint, and loses requests and responses.
//   - shim.go: runs in front of a handler that is a program, records its process, and holds it before or after its run.
//   - journal.go: what the handler's own journal has.
//   - trial.go, process.go: one attack: its queue, its worker processes, and what they left.
//   - judge.go, explain.go: the verdict, why, and the fix.
//   - naive.go: the consumer that people write by hand, for the guard off.
package attack
