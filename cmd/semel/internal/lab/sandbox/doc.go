// Package sandbox is a small system that runs until it is taken down: POST /enqueue, a queue, a worker with a simulated
// handler and a store, in one process. Up starts the process in the background and writes its address to a folder. Down
// finds it by that folder, lets it remove everything that it made, and lists that.
//
// Down never kills a process by its number. It asks the process over HTTP, with a token that only its folder has, so that
// another program with the same process id or port is left alone.
package sandbox
