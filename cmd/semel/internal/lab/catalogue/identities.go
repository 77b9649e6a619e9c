package catalogue

import "github.com/semel-dev/semel/cmd/semel/internal/lab/plan"

func identities() []plan.Scenario {
	duplicates := base("duplicates", "The queue forgets acks: what is done comes again")
	duplicates.Asks = "I acked it. Why does it come again?"
	duplicates.Mend = "At-least-once is meant literally: a deleted message may come again. Remember what is done for longer than the queue keeps it."
	duplicates.Wire.ForgetAck = 0.3
	duplicates = versus(duplicates, plan.Plain, plan.SemelKeyed)
	duplicates = expect(duplicates, plan.GuardOff, plan.Broken, plan.AtLeast("duplicated", 1))
	duplicates = expect(duplicates, plan.GuardOn, plan.Held, plan.Exactly("effects", 30), plan.AtLeast("replayed", 1))

	retry := base("producer-retry", "The producer sends again, under another message id")
	retry.Asks = "Is the message id the idempotency key?"
	retry.Mend = "No: what the producer sends twice has two ids. Take the business key (order and action)."
	retry.Load.Retries = 6
	retry = versus(retry, plan.MessageID, plan.Semel)
	retry = expect(retry, plan.GuardOff, plan.Broken, plan.AtLeast("duplicated", 6))
	retry = expect(retry, plan.GuardOn, plan.Held, plan.Exactly("effects", 30), plan.AtLeast("replayed", 6))

	redrive := base("redrive", "A dead-letter queue is redriven after everything was done: new ids, old orders")
	redrive.Asks = "Is it safe to redrive a dead-letter queue?"
	redrive.Mend = "A redriven message has a new id. Keep the key in an attribute or in the body, and the records for as long as letters."
	redrive.Load.Again = 8
	redrive = versus(redrive, plan.MessageID, plan.Semel)
	redrive = expect(redrive, plan.GuardOff, plan.Broken, plan.AtLeast("duplicated", 8))
	redrive = expect(redrive, plan.GuardOn, plan.Held, plan.Exactly("effects", 30), plan.AtLeast("replayed", 8))
	return []plan.Scenario{duplicates, retry, redrive}
}
