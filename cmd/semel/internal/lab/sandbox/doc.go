// Package sandbox is a small system that stands until it is taken down: POST /enqueue, a queue, a worker with a simulated
// handler and a store, in one process. Up starts the process in the background and writes down in a folder where it is;
// Down finds it by that folder, lets it remove what it made, and says what that was.
//
// Nobody is ever killed by number: the process is asked over HTTP, with a token that only its folder has, so that another
// program which got the same process id or port since then is left alone.
package sandbox
