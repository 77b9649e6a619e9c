// Package steps makes handlers of several steps durable: a run that is interrupted goes on where it was, and a run that
// fails for good is undone, step by step, in reverse (a saga). It is mode E of the protocol (section 7), and stands on
// driver.StepStore only: SQLite, PostgreSQL and memory have it.
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
// The function runs from its beginning in every attempt. A step that is done is not called again: its result comes from
// the journal. So the function has to be deterministic in which steps it runs, and everything that is not (the time, a
// random number, an external response) belongs in a step. Steps are known by their names, never by their order.
//
// # What each kind of step gives
//
//   - [Do]: at least once. The step is called with an effect key that is the same in every attempt; a downstream that
//     deduplicates by it makes it exactly once.
//   - [Once]: at most once. Its start is durable before it is called. After an interruption a probe is asked. If the outcome
//     stays unknown, the key is parked for an operator.
//   - [InTx]: exactly once, for effects in the store's own database: they commit with the journal.
//   - [Each]: the items of one message, each a step of its own: those that are done stay done, however the others end.
//
// # Compensation
//
// [Undo] gives a step a compensation, which is durably registered before the step may run. When the run fails for good,
// every registered step is compensated, the last one first, whether it is done, failed, or of unknown outcome. The
// compensation of a step of unknown outcome must cancel the original or leave a tombstone for it: a late original that
// was still on its way then finds the tombstone and is refused. See [Reversal]. When all is undone, the message becomes a
// dead letter, and a redrive runs under new effect keys.
//
// A run fails for good when its function returns an error that is semel.Permanent (or [Abort]), or any error in the last
// attempt. An attempt in which the journal did not respond (semel.ErrNoResponse) does not count. From then on it never goes
// forward again, whichever worker resumes it. A compensation that fails is repeated in place, then later, and parked for an operator
// when it failed too often: it is never dropped.
//
// # Rules
//
// The engine's policy should be semel.Resume, the default: the journal knows better than the record what is in doubt.
// With semel.Once a run that was interrupted or failed is parked at once. With semel.Probe the probe is asked about the
// whole run before it goes on: not applied resumes it, forward or backward as the journal says, but applied completes it
// whatever became of its steps. Keys with versions: a newer version has a journal of its own, and leaves the steps of an
// interrupted older one as they are.
//
// A [Run] belongs to one goroutine. Only Each runs items concurrently. A run that loses the lease stops: no further step or
// compensation is called, and it returns semel.ErrFenced.
package steps
