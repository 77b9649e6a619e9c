package scenarios

import (
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

func shapes() []plan.Scenario {
	poison := base("poison", "Some orders can never be done")
	poison.Asks = "What happens to a message that fails every time?"
	poison.Hint = "Count the attempts, then move it to the dead-letter queue with its reason. Deleting it loses it."
	poison.Load.Poison, poison.Workers.MaxAttempts = 3, 3
	poison.Workers.Visibility = 500 * time.Millisecond
	poison = versus(poison, plan.Plain, plan.Semel)
	poison = expect(poison, plan.GuardOff, plan.Broken, plan.Exactly("lost", 3), plan.Exactly("dead", 0))
	poison = expect(poison, plan.GuardOn, plan.Held, plan.Exactly("effects", 27), plan.Exactly("dead", 3))

	batch := base("partial-batch", "Two of ten items in a message fail at first")
	batch.Asks = "One item of a batch fails: what is retried?"
	batch.Hint = "The failed items only. Make each item a step with a key of its own."
	batch.Load.Orders, batch.Load.Items, batch.Load.BadItems = 5, 10, 2
	batch = versus(batch, plan.FailFast, plan.SemelSteps)
	batch = expect(batch, plan.GuardOff, plan.Broken, plan.AtLeast("duplicated", 40))
	batch = expect(batch, plan.GuardOn, plan.Held, plan.Exactly("effects", 50))

	versions := base("versions", "Updates of one entity overtake each other")
	versions.Asks = "Updates arrive in the wrong order: which one wins?"
	versions.Hint = "The newest version, compared in the same write that applies it; an older one is stale."
	versions.Load.Orders, versions.Load.Versions = 10, 5
	versions = versus(versions, plan.LastWriter, plan.Semel)
	versions = expect(versions, plan.GuardOff, plan.Broken, plan.AtLeast("regressed", 1))
	versions = expect(versions, plan.GuardOn, plan.Held, plan.AtLeast("stale", 1))

	saga := base("saga", "A trip of three bookings, the last of which is impossible for some, workers that die and lost responses")
	saga.Asks = "The third step fails: what undoes the first two?"
	saga.Hint = "A journal that outlives the process: register each compensation before its step runs, undo in reverse order."
	saga.Load.Orders, saga.Load.Items, saga.Load.Saga, saga.Load.Poison = 8, 3, true, 5
	saga.Wire.LoseEffect = 0.2 // of compensations, too: they are repeated
	saga.Faults = []plan.Fault{{Do: plan.Kill, Step: plan.BetweenEffects, Count: 3}}
	saga = versus(saga, plan.SagaByHand, plan.SemelSaga)
	saga = expect(saga, plan.GuardOff, plan.Broken)
	saga = expect(saga, plan.GuardOn, plan.Held, plan.Exactly("standing", 0), plan.Exactly("dead", 5), plan.AtLeast("kills", 3))

	mail := base("outbox", "Each order is committed here and mailed by a service elsewhere, and workers die between the two")
	mail.Asks = "How do I write to my database and publish to another system?"
	mail.Hint = "Commit the message together with the order (an outbox), and let a relay publish it under one id. If the relay is killed " +
		"in between, it publishes again, and the other side recognizes the id."
	mail.Load.Mail = true
	mail.Faults = []plan.Fault{{Do: plan.Kill, Step: plan.BetweenEffects, Count: 3}}
	mail = versus(mail, plan.DualWrite, plan.SemelOutbox)
	mail = expect(mail, plan.GuardOff, plan.Broken, plan.AtLeast("lost", 1))
	mail = expect(mail, plan.GuardOn, plan.Held, plan.Exactly("effects", 60), plan.AtLeast("kills", 3))
	return []plan.Scenario{poison, batch, versions, saga, mail}
}
