package plan

// sentences say of each design what it does, in the order in which it does it.
var sentences = map[Design]string{
	Plain: "Receives, works, acks. It knows nothing of what was done before.",
	CheckLast: "Looks the id up, works, then records it on condition that it is not there yet, and acks. Between look-up " +
		"and record anybody else may do the same work.",
	CheckLastBlind: "Looks the id up, works, then records it without a condition, and acks. Who comes second never learns it.",
	SkipBusy:       "Marks the id as being worked on, works, marks it done. What is marked already is acked, also while it is only begun.",
	MarkFirst:      "Records the id, then works, then acks. What is recorded is skipped, also when the work never happened.",
	TTLLock: "Takes a lock that expires and is never extended, looks the id up, works, records it, deletes the lock, " +
		"whoever owns it by then.",
	MessageID:  "Guards the work without any gap, by the broker's message id. What is sent again has another id.",
	FailFast:   "Works the items of a message off and stops at the first bad one. The whole message comes again, the good items too.",
	LastWriter: "Applies whatever version arrives, in the order in which it arrives.",
	Semel: "semel: claims the key before the work, extends its lease meanwhile, and commits effect and record in one " +
		"transaction that a late owner cannot pass.",
	SemelKeyed: "semel: claims the key before the work, extends its lease meanwhile, and calls the service under an effect " +
		"key that stays the same in every attempt.",
	SagaByHand: "Does the steps one after the other, and undoes what it remembers when one cannot be done. It remembers in its own memory.",
	DualWrite: "Records the id and commits the order in its database, then sends the mail by a service elsewhere, then acks. " +
		"Dying in between, the mail is never sent.",
	SemelSaga: "semel: keeps a journal in which each step's compensation is registered before the step runs; a failed run is " +
		"undone in reverse order, by whichever process.",
	SemelOutbox: "semel: commits the mail with the order and the record, in one transaction; a relay sends it under one id.",
	SemelSteps:  "semel: claims the key before the work and keeps a journal, in which each item is a step with an effect key of its own.",
}

// Sentence describes what the consumer does; "" for an unknown design.
func (d Design) Sentence() string { return sentences[d] }
