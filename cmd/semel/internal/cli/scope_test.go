package cli

import (
	"testing"

	"github.com/semel-dev/semel/driver"
)

// TestScopeOfDeadLetters asserts on whose dead letters a command acts: several queues of SQS may have one dead-letter queue,
// and a redrive sends a message to the queue that --queue names.
func TestScopeOfDeadLetters(t *testing.T) {
	letter := func(consumer, queue string) *driver.Letter {
		return &driver.Letter{Key: driver.Key{Consumer: consumer, Raw: "k"}, Message: driver.Message{Queue: queue}}
	}
	const url = "sqlite:q.db?queue=emails"
	for _, c := range []struct {
		flags       scopeFlags
		store, from string
		letter      *driver.Letter
		want        bool
	}{
		{scopeFlags{}, "", url, letter("emails", "emails"), true},
		{scopeFlags{}, "", url, letter("charge", "emails"), true},
		{scopeFlags{}, "", url, letter("", "emails"), true}, // moved by SQS: its consumer is unknown
		{scopeFlags{}, "", url, letter("", ""), true},
		{scopeFlags{}, "", url, letter("payments", "payments"), false},
		{scopeFlags{}, "", url, letter("", "payments"), false},
		{scopeFlags{}, "", "sqlite:q.db", letter("payments", "payments"), true},
		{scopeFlags{}, url, "sqlite:q.db", letter("payments", "payments"), false},
		{scopeFlags{consumer: "payments"}, "", url, letter("payments", "payments"), true},
		{scopeFlags{consumer: "payments"}, "", url, letter("emails", "emails"), false},
		{scopeFlags{consumer: "charge"}, "", url, letter("", "emails"), true},
		{scopeFlags{consumer: "charge"}, "", url, letter("", "payments"), false},
		{scopeFlags{consumer: "charge"}, "sqlite:r.db?queue=records", url, letter("", "emails"), true},
		{scopeFlags{consumer: "payments", all: true}, "", url, letter("emails", "emails"), true},
	} {
		s, err := c.flags.of(c.store, c.from)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.hasDeadLetter(c.letter); got != c.want {
			t.Errorf("%+v of --store %q --queue %q: letter of %q in %q is in the scope: %t, want %t", c.flags, c.store, c.from,
				c.letter.Key.Consumer, c.letter.Message.Queue, got, c.want)
		}
	}
	if _, err := (&scopeFlags{}).of("sqlite:q.db?queue=a", "sqlite:q.db?queue=b"); err == nil {
		t.Error("two queues: no error")
	}
}
