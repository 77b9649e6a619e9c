package plan

// sentences describe what each design does, in order.
var sentences = map[Design]string{
	Plain: "Receives, works, acks. It does not know what was done before.",
	CheckLast: "Looks the id up, works, then records it on the condition that it is new, and acks. Between look-up " +
		"and record another worker may do the same work.",
	CheckLastBlind: "Looks the id up, works, then records it without a condition, and acks. The second worker does not notice.",
	SkipBusy:       "Marks the id as in progress, works, marks it done. A message with a marked id is acked, even while its work is in progress.",
	MarkFirst:      "Records the id, then works, then acks. A recorded id is skipped, even if its work never happened.",
	TTLLock: "Takes a lock that expires and is never extended, looks the id up, works, records it, deletes the lock, " +
		"even if another worker owns it by then.",
	MessageID:  "Guards the work without a gap, by the broker's message id. A message that is sent again has another id.",
	FailFast:   "Works through the items of a message and stops at the first bad one. The whole message is redelivered, with the good items.",
	LastWriter: "Applies every version in the order of arrival.",
	Semel: "Claims the key before the work, extends its lease meanwhile, and commits effect and record in one " +
		"transaction that a late owner cannot pass.",
	SemelKeyed: "Claims the key before the work, extends its lease meanwhile, and calls the service under an effect " +
		"key that stays the same in every attempt.",
	SagaByHand: "Does the steps one after the other, and undoes them if one cannot be done. It keeps the list in its own memory.",
	DualWrite: "Records the id and commits the order in its database, then sends the mail by a service elsewhere, then acks. " +
		"If it dies in between, the mail is never sent.",
	SemelSaga: "Keeps a journal in which each step's compensation is registered before the step runs; a failed run is " +
		"undone in reverse order, by any process.",
	SemelOutbox: "Commits the mail with the order and the record, in one transaction; a relay sends it under one id.",
	SemelSteps:  "Claims the key before the work and keeps a journal, in which each item is a step with an effect key of its own.",
}

// Sentence describes what the consumer does; "" for an unknown design.
func (d Design) Sentence() string { return sentences[d] }
