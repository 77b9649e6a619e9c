package scenarios

import (
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

func identities() []plan.Scenario {
	duplicates := base("duplicates", "The queue forgets acks: finished messages are redelivered")
	duplicates.Asks = "I acked it. Why is it delivered again?"
	duplicates.Hint = "At-least-once is meant literally: a deleted message may be delivered again. Keep the record for longer than the queue keeps the message."
	duplicates.Wire.ForgetAck = 0.3
	duplicates = versus(duplicates, plan.Plain, plan.SemelKeyed)
	duplicates = expect(duplicates, plan.GuardOff, plan.Broken, plan.AtLeast("duplicated", 1))
	duplicates = expect(duplicates, plan.GuardOn, plan.Held, plan.Exactly("effects", 30), plan.AtLeast("replayed", 1))

	retry := base("producer-retry", "The producer sends again, under another message id")
	retry.Asks = "Is the message id the idempotency key?"
	retry.Hint = "No: a message that the producer sends twice has two ids. Take the business key (order and action)."
	retry.Load.Retries = 6
	retry = versus(retry, plan.MessageID, plan.Semel)
	retry = expect(retry, plan.GuardOff, plan.Broken, plan.AtLeast("duplicated", 6))
	retry = expect(retry, plan.GuardOn, plan.Held, plan.Exactly("effects", 30), plan.AtLeast("replayed", 6))

	redrive := base("redrive", "A dead-letter queue is redriven after everything was done: new ids, old orders")
	redrive.Asks = "Is it safe to redrive a dead-letter queue?"
	redrive.Hint = "A redriven message has a new id. Keep the key in an attribute or in the body, and the records for as long as dead letters."
	redrive.Load.Again = 8
	redrive = versus(redrive, plan.MessageID, plan.Semel)
	redrive = expect(redrive, plan.GuardOff, plan.Broken, plan.AtLeast("duplicated", 8))
	redrive = expect(redrive, plan.GuardOn, plan.Held, plan.Exactly("effects", 30), plan.AtLeast("replayed", 8))

	fanout := base("fanout", "One upload matches two rules: every file arrives twice, under two event ids")
	fanout.Asks = "Why does my workflow start twice for one file?"
	fanout.Hint = "Key the start by bucket, key and version of the object, not by the event; claim the key before the start."
	fanout.Load.Orders, fanout.Load.PerKey = 10, 2
	fanout = versus(fanout, plan.MessageID, plan.Semel)
	fanout = expect(fanout, plan.GuardOff, plan.Broken, plan.Exactly("duplicated", 10))
	fanout = expect(fanout, plan.GuardOn, plan.Held, plan.Exactly("effects", 10), plan.AtLeast("replayed", 10))

	start := base("double-start", "A workflow is started by two rules and by the producer's retry, and responses to the start get lost")
	start.Asks = "How do I start a workflow once, whatever asks for it?"
	start.Hint = "Claim the key, then start under a name made from it: the service recognizes the second start."
	start.Load.Orders, start.Load.PerKey, start.Load.Retries = 10, 2, 4
	start.Wire.LoseEffect = 0.3
	start.Workers.Visibility = 500 * time.Millisecond
	start = versus(start, plan.Plain, plan.SemelKeyed)
	start = expect(start, plan.GuardOff, plan.Broken, plan.AtLeast("duplicated", 10))
	start = expect(start, plan.GuardOn, plan.Held, plan.Exactly("effects", 10), plan.AtLeast("replayed", 10))

	response := base("lost-response", "The payment service does its work, and its response gets lost")
	response.Asks = "The call failed. May I repeat it?"
	response.Hint = "Only under the same idempotency key: the service then recognizes the second call."
	response.Wire.LoseEffect = 0.2
	response.Workers.Visibility = 500 * time.Millisecond
	response = versus(response, plan.CheckLast, plan.SemelKeyed)
	response = expect(response, plan.GuardOff, plan.Broken, plan.AtLeast("duplicated", 1))
	response = expect(response, plan.GuardOn, plan.Held, plan.Exactly("effects", 30), plan.AtLeast("executed", 31))
	return []plan.Scenario{duplicates, retry, redrive, fanout, start, response}
}
