package main

import "testing"

func TestOldWords(t *testing.T) {
	for line, bad := range map[string]bool{
		"the message becomes a letter": true, "a dead letter, dead_letters, DeadLetters, dead-letter queue": false,
		"func (q *Queue) PutLetter()": true, "letters, digits and dashes": false, "letter-spacing: 1px": false,
		"it answers ErrLost": true, "the store responds": false, "holdAnswer": true, "web sites, call sites": false,
		"InHand": true, "in_hand": true, "in flight": false, "the lease is over": true, "it is overloaded": false,
		"stranded": true, "pushFront": false, "frontCache": true, "in front of a store": false, "the audit trail": true, "CloudTrail, trailing": false,
		"is told": true, "nobody knows": true, "for ever": true, "forever": false, "replayed": false, "played": true,
	} {
		if found := checkWords("f.go", []byte("first\n"+line)); len(found) > 0 != bad {
			t.Errorf("%q: %v", line, found)
		}
	}
}
