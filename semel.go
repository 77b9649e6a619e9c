package semel

import "github.com/semel-dev/semel/driver"

// The nouns that programs meet are the adapters' own: see package driver for their contracts.
type (
	// Message is what a sender sent.
	Message = driver.Message
	// Key is what must take effect once.
	Key = driver.Key
	// Queue hands out deliveries.
	Queue = driver.Queue
	// Store keeps the idempotency records.
	Store = driver.Store
	// Statements are SQL effects that commit with the record: the T of InTx that needs no open transaction.
	Statements = driver.Statements
	// Fingerprint is the hash of the meaningful payload with the id of its recipe.
	Fingerprint = driver.Fingerprint
	// Takeover says what happens to a run whose outcome nobody knows.
	Takeover = driver.Takeover
	// DeadLetter is a message set aside for a person.
	DeadLetter = driver.DeadLetter
)

// The takeover policies, from the mildest to the strictest.
const (
	// Resume runs the handler again with the same effect key. The default.
	Resume = driver.Resume
	// Probe asks Config.Probe whether the effect happened before it runs again.
	Probe = driver.Probe
	// Once never runs again on its own: the key is parked as uncertain, for a person.
	Once = driver.Once
)
