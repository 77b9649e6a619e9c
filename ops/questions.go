package ops

import (
	"fmt"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

// Question is a common question about idempotent consumers, with the reply for this input.
type Question struct {
	Question string `json:"question"`
	Reply    string `json:"reply"`
	Cases    []Case `json:"cases,omitempty"`
}

// Case is a line of a decision table.
type Case struct {
	When string `json:"when"`
	Then string `json:"then"`
	// Verdict is the store's verdict in this case, if there is one.
	Verdict string `json:"verdict,omitempty"`
}

// Questions returns the questions that concern the queue, those about DynamoDB only where the records may be there. Inputs change
// only the numbers in them.
func (in Workload) Questions() []Question {
	in = in.Assumed()
	s := in.Settings()
	beat := fmt.Sprintf("every %s: a third of the lease of %s, counted from the receive, so that two in a row may fail; what waits for "+
		"a handler is extended as well. It cannot go on forever: a run ends at %s", words.About(s.Heartbeat), words.About(s.Lease), words.About(s.MaxRuntime))
	if s.Heartbeat == 0 {
		beat = "never, as you said: the visibility alone has to cover the longest run"
	}
	all := []Question{
		{
			Question: "What decides the visibility timeout?",
			Reply: fmt.Sprintf("%s here. With a heartbeat: only how long a message may wait after a crash, so half a minute or a minute. "+
				"Without one: the longest run of all that a worker has in flight. Under Lambda: six times the function's time limit and the "+
				"batching window. More than the p99 is not enough: one run in a hundred would be doubled", words.About(s.Visibility)),
		},
		{Question: "How often should the visibility be extended?", Reply: beat},
	}
	if in.Kind.SQS() || in.Kind == KindOther {
		all = append(all, Question{
			Question: "What should happen when the conditional write fails?",
			Reply:    "look at the record that made it fail: it is one of these, and only the first and the last two of them end the message",
			Cases:    conditions(),
		}, Question{
			Question: "What else than DynamoDB can remember what was done?",
			Reply:    "whatever decides in one atomic step and outlives the process; where it can commit together with the effect it is best",
			Cases:    alternatives(),
		})
	}
	return append(all, Question{
		Question: "How does this differ from only making the visibility timeout short?",
		Reply: "a short timeout shows that a message comes again while its first run goes on; it prevents nothing. The heartbeat makes " +
			"that rare, the record makes it harmless: with a heartbeat alone a failed extension or a lost delete still doubles the effect, " +
			"with a record alone every slow run is started twice and refused once",
	})
}

// conditions is what a failed condition means. The verdicts are those of the decision table, which a test holds against it.
func conditions() []Case {
	v := func(v driver.Verdict) string { return v.String() }
	return []Case{
		{"it is completed, and the payload agrees", "delete the message; return the stored result", v(driver.Replay)},
		{
			"it is in progress, and its lease goes on",
			"put the message off until the lease can have ended; never delete it, because the run may still crash", v(driver.Busy),
		},
		{
			"it is in progress, and its lease has ended",
			"take it over with the next token: the old run's writes are refused, and its effect is in doubt", v(driver.Acquired),
		},
		{"it waits for its next attempt", "take it when its time has come, else put the message off", v(driver.Acquired)},
		{"the write was our own, and its response was lost", "go on: the nonce is ours", v(driver.Acquired)},
		{"the store failed or throttled, and the outcome is unknown", "repeat the same write; run nothing and delete nothing until it responds", ""},
		{"the payload is another one", "keep it as a dead letter for a person; never return the other's result", v(driver.Mismatch)},
		{"it has failed for good, or is parked for a person", "delete the message: its dead letter is there", v(driver.Failed)},
	}
}

func alternatives() []Case {
	return []Case{
		{"the effect is in PostgreSQL, MySQL, SQLite or DynamoDB", "record and effect in one transaction (--effects, InTx): exactly once", ""},
		{"the effect is a call to somebody who takes an idempotency key", "hand on the effect key; the record saves the call", ""},
		{"there is a Redis or a Valkey", "--store redis://…, and an effect key: it may lose its last writes when it fails over", ""},
		{"the queue is FIFO", "its deduplication id drops what is sent again within 5 minutes, and nothing else", ""},
		{"the queue is JetStream", "Nats-Msg-Id drops what is sent again within its window, 2 minutes by default", ""},
		{"messages carry a version of a state", "write only if it is newer; older ones are stale and no record of each is kept", ""},
		{"the effect is the same however often it happens", "nothing is needed but a unique business key as the last line", ""},
	}
}
