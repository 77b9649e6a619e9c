package cli

import (
	"testing"

	"github.com/semel-dev/semel/driver"
)

// TestScopeOfDeadLetters asserts which dead letters a command acts on: several queues of SQS may have one dead-letter queue,
// and a redrive sends a message to the queue that --queue names.
func TestScopeOfDeadLetters(t *testing.T) {
	deadLetter := func(consumer, queue string) *driver.DeadLetter {
		return &driver.DeadLetter{Key: driver.Key{Consumer: consumer, Raw: "k"}, Message: driver.Message{Queue: queue}}
	}
	const url = "sqlite:q.db?queue=emails"
	for _, c := range []struct {
		flags       scopeFlags
		store, from string
		deadLetter  *driver.DeadLetter
		want        bool
	}{
		{scopeFlags{}, "", url, deadLetter("emails", "emails"), true},
		{scopeFlags{}, "", url, deadLetter("charge", "emails"), true},
		{scopeFlags{}, "", url, deadLetter("", "emails"), true}, // moved by SQS: its consumer is unknown
		{scopeFlags{}, "", url, deadLetter("", ""), true},
		{scopeFlags{}, "", url, deadLetter("payments", "payments"), false},
		{scopeFlags{}, "", url, deadLetter("", "payments"), false},
		{scopeFlags{}, "", "sqlite:q.db", deadLetter("payments", "payments"), true},
		{scopeFlags{}, url, "sqlite:q.db", deadLetter("payments", "payments"), false},
		{scopeFlags{consumer: "payments"}, "", url, deadLetter("payments", "payments"), true},
		{scopeFlags{consumer: "payments"}, "", url, deadLetter("emails", "emails"), false},
		{scopeFlags{consumer: "charge"}, "", url, deadLetter("", "emails"), true},
		{scopeFlags{consumer: "charge"}, "", url, deadLetter("", "payments"), false},
		{scopeFlags{consumer: "charge"}, "sqlite:r.db?queue=records", url, deadLetter("", "emails"), true},
		{scopeFlags{consumer: "payments", all: true}, "", url, deadLetter("emails", "emails"), true},
	} {
		s, err := c.flags.of(c.store, c.from)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.hasDeadLetter(c.deadLetter); got != c.want {
			t.Errorf("%+v of --store %q --queue %q: dead letter of %q in %q is in the scope: %t, want %t", c.flags, c.store, c.from,
				c.deadLetter.Key.Consumer, c.deadLetter.Message.Queue, got, c.want)
		}
	}
	if _, err := (&scopeFlags{}).of("sqlite:q.db?queue=a", "sqlite:q.db?queue=b"); err == nil {
		t.Error("two queues: no error")
	}
}
