// Package steps makes handlers with several steps durable. An interrupted run resumes where it was. A run that fails
// for good is undone, step by step, in reverse (a saga). It is mode E of the protocol (section 7), and needs a store
// that is a driver.StepStore.
//
//	handler := steps.Handler(func(ctx context.Context, r *steps.Run) error {
//		flight, err := steps.Do(ctx, r, "flight", bookFlight, steps.Undo(cancelFlight))
//		if err != nil {
//			return err
//		}
//		_, err = steps.Do(ctx, r, "hotel", bookHotel(flight.Arrival), steps.Undo(cancelHotel))
//		return err
//	})
//
// The function runs from its beginning in every attempt. A completed step is not called again: its result comes from
// the journal. So the choice of steps must be deterministic. Everything that is not (the time, a random number, an
// external response) belongs in a step. Steps are identified by name, never by order.
//
// # What each kind of step gives
//
//   - [Do]: at least once. The step is called with an effect key that is the same in every attempt; if a downstream
//     deduplicates by it, the step is exactly once.
//   - [Once]: at most once. Its start is durable before it is called. After an interruption a probe is asked. If the outcome
//     stays unknown, the key is parked for an operator.
//   - [InTx]: exactly once, for effects in the store's own database: they commit with the journal.
//   - [Each]: the items of one message, each a step of its own: completed ones stay done, however the others end.
//
// # Compensation
//
// [Undo] gives a step a compensation, which is durably registered before the step may run. When the run fails for good,
// every registered step is compensated, the last one first, whether it is done, failed, or of unknown outcome. If the
// outcome is unknown, the compensation must cancel the original or leave a tombstone for it. A late original then finds
// the tombstone and is refused. See [Reversal]. When all is undone, the message becomes a dead letter, and a redrive
// runs under new effect keys.
//
// A run fails for good when its function returns an error that is semel.Permanent (or [Abort]), or any error in the
// last attempt. An attempt in which the journal did not respond (semel.ErrNoResponse) does not count. A run that has
// failed for good never goes forward again, whichever worker resumes it. A failed compensation is repeated in place,
// then later. After too many failures it is parked for an operator, and never dropped.
//
// # Rules
//
// Use the policy semel.Resume, the default: the journal knows the doubts better than the record. With semel.Once an
// interrupted or failed run is parked at once. With semel.Probe the probe is asked about the whole run before it
// resumes. Not applied resumes it, forward or backward by the journal. Applied completes it, whatever the state of its
// steps. For keys with versions: a newer version has its own journal, and leaves the steps of an interrupted older one
// unchanged.
//
// A [Run] belongs to one goroutine. Only Each runs items concurrently. A run that loses the lease stops: no further step or
// compensation is called, and it returns semel.ErrFenced.
package steps
