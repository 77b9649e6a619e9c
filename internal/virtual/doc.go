// Package virtual is the kernel of deterministic simulators: they run production code against a model of everything around
// it, in virtual time. One seed is one history, so that a violation is reproduced by its number.
//
// A simulator is a type that embeds [World], which has what all of them need: the virtual time, the random numbers, the
// faults that are planted, the history and the first violation. Most have an [Events] too, of a type of their own. What is
// left to the simulator is its model and its invariants. Its loop is
//
//	w.Begin(schedule, salt, trace)
//	// draw the configuration, and add the first events
//	for w.Broken == nil && w.events.Len() > 0 {
//		at, event := w.events.Next()
//		w.Now = at
//		// apply event to the model: add events, call Fail where an invariant does not hold
//	}
//
// Everything random comes from World, nothing from the machine's clock, from goroutines or from the order of a map. Every
// boundary at which a process may crash, or a request may be lost, calls [World.Operation].
//
// An [Explorer] runs many schedules of a [Kind] of simulator: seeds with random faults; crash points, which plant each fault
// at each operation; and mistakes, known ways to get the protocol wrong that the simulator plants in its model. A checker
// that finds nothing proves nothing: each mistake has to be found. The example is a whole simulator.
//
// [Time] is for production code that waits: it asks for its time once, by [Of], and gets the machine's own unless a
// simulator put another one into the context.
package virtual
