package driver

import (
	"errors"
	"testing"
	"time"
)

func TestHeader(t *testing.T) {
	m := Message{Headers: map[string]string{"Content-Type": "a", "X-Key": "upper", "x-key": "lower", "ce-id": "1"}}
	for name, want := range map[string]string{
		"Content-Type": "a", "content-type": "a", "CONTENT-TYPE": "a", "x-key": "lower", "X-Key": "upper", "X-KEY": "upper",
		"CE-ID": "1", "ce_id": "", "": "", "content-typ": "",
	} {
		for range 20 { // two spellings must not depend on the order of the map
			if got := m.Header(name); got != want {
				t.Fatalf("header %q is %q, wanted %q", name, got, want)
			}
		}
	}
}

// TestPosition: the text is stored as a key, and a dead letter keeps it as a header.
func TestPosition(t *testing.T) {
	p := &Position{Log: "shop/orders", Partition: 3, Offset: 1<<62 + 1, Epoch: 9}
	if got := p.String(); got != "shop/orders/3/4611686018427387905" {
		t.Errorf("position %q", got)
	}
	sent := map[string]string{"h": "v"}
	m := Message{Headers: sent, Position: p}.Detached()
	if m.Position != nil || m.Header(PositionHeader) != p.String() || m.Header("h") != "v" || len(sent) != 1 {
		t.Errorf("detached %+v, the sender's headers are %v", m, sent)
	}
	m.Position = &Position{Log: "shop/orders", Partition: 3, Offset: 17} // it was sent again
	if again := m.Detached(); again.Header(PositionHeader) != p.String() {
		t.Errorf("detached twice %+v", again)
	}
	if m := (Message{ID: "m"}).Detached(); m.Headers != nil {
		t.Errorf("a message without a position has the headers %v", m.Headers)
	}
	if m := (Message{Position: p}).Detached(); m.Header(PositionHeader) == "" {
		t.Error("a message without headers lost its position")
	}
}

// TestFM54KeyHash: no two ways to split a text into consumer, tenant and key meet.
func TestFM54KeyHash(t *testing.T) {
	seen := map[[32]byte]Key{}
	const text = "ab|c\x00d"
	for i := range len(text) + 1 {
		for j := i; j <= len(text); j++ {
			k := Key{Consumer: text[:i], Tenant: text[i:j], Raw: text[j:]}
			if other, ok := seen[k.Hash()]; ok {
				t.Errorf("%q and %q have one hash", k, other)
			}
			seen[k.Hash()] = k
		}
	}
}

// TestFM79DeadLetterID: a second failure after a redrive is another dead letter, a repeated publication is not.
func TestFM79DeadLetterID(t *testing.T) {
	k := Key{Consumer: "c", Tenant: "t", Raw: "r"}
	ids := map[string]string{}
	for name, id := range map[string]string{
		"dead 1":      DeadLetterID(DeadLetterFailed, k, 1, ""),
		"dead 2":      DeadLetterID(DeadLetterFailed, k, 2, ""),
		"uncertain 1": DeadLetterID(DeadLetterUncertain, k, 1, ""),
		"mismatch a":  DeadLetterID(DeadLetterMismatch, k, 1, "rcp1a"),
		"mismatch b":  DeadLetterID(DeadLetterMismatch, k, 1, "rcp1b"),
		"other key":   DeadLetterID(DeadLetterFailed, Key{Consumer: "c", Tenant: "tr"}, 1, ""),
	} {
		if other, ok := ids[id]; ok {
			t.Errorf("%s and %s are one dead letter", name, other)
		}
		ids[id] = name
	}
	if DeadLetterID(DeadLetterFailed, k, 1, "rcp1a") != DeadLetterID(DeadLetterFailed, k, 1, "") {
		t.Error("a dead letter's id depends on the fingerprint")
	}
	if DeadLetterID(DeadLetterMismatch, k, 1, "rcp1a") != DeadLetterID(DeadLetterMismatch, k, 2, "rcp1a") {
		t.Error("a mismatch dead letter's id depends on the token")
	}
}

// TestFM79_WithoutFingerprint: senders use one id for two messages. Where no key and no fingerprint tells them apart, what
// they say does.
func TestFM79_WithoutFingerprint(t *testing.T) {
	k := Key{Consumer: "c", Raw: "r"}
	same := []Message{{ID: "m", Body: []byte("a")}, {ID: "m", Body: []byte("a"), SentAt: time.Now(), Queue: "q", Delay: 1}}
	others := []Message{
		{ID: "m", Body: []byte("b")}, {ID: "m", Body: []byte("a"), Headers: map[string]string{"k": ""}}, {ID: "m", Body: []byte("a"), Group: "g"},
		{ID: "m", Body: []byte("a"), Headers: map[string]string{"k": "v", "l": "w"}}, {ID: "m", Body: []byte("a"), Headers: map[string]string{"k": "vl", "w": ""}},
		{ID: "n", Body: []byte("a")}, {ID: "m"}, {},
	}
	for name, id := range map[string]func(m *Message) string{
		"no key":      func(m *Message) string { return DeadLetterID(DeadLetterFailed, m.StandIn("c"), 0, "") },
		"late":        func(m *Message) string { return LateDeadLetterID(k, "\x01v", "", m) },
		"mismatch":    func(m *Message) string { return MismatchDeadLetterID(k, "", "\x01v", m) },
		"unversioned": func(m *Message) string { return MismatchDeadLetterID(k, "", "", m) },
	} {
		ids := map[string]int{id(&same[0]): -1}
		if id(&same[0]) != id(&same[1]) {
			t.Errorf("%s: a redelivery is another dead letter", name)
		}
		for i := range others {
			if j, ok := ids[id(&others[i])]; ok {
				t.Errorf("%s: messages %d and %d are one dead letter", name, j, i)
			}
			ids[id(&others[i])] = i
		}
	}
	if id := DeadLetterID(DeadLetterFailed, same[0].StandIn("c"), 0, ""); id != "b4ae0a136b963330fe74078bda450c6e" {
		t.Errorf("the stored id of a message without a key is %s: raise the version of its recipe", id)
	}
	if a, b := MismatchDeadLetterID(k, "rcp1a", "", &others[0]), MismatchDeadLetterID(k, "rcp1a", "", &others[1]); a != b {
		t.Error("with a fingerprint the id of a mismatch dead letter depends on more than that")
	}
}

func TestNames(t *testing.T) {
	for s := Absent; s <= Uncertain; s++ {
		if got, ok := ParseState(s.String()); !ok || got != s {
			t.Errorf("state %v is read as %v, %v", s, got, ok)
		}
		if s.Terminal() != (s == Completed || s == FailedState || s == Uncertain) {
			t.Errorf("Terminal of %v is %v", s, s.Terminal())
		}
	}
	if _, ok := ParseState("completed"); ok {
		t.Error("a state in lower case was read")
	}
	cause := errors.New("cause")
	if err := error(&ItemError{Index: 3, Err: cause}); !errors.Is(err, cause) || err.Error() != "item 3 refused: cause" {
		t.Errorf("item error: %v", err)
	}
}

func TestStatements(t *testing.T) {
	var s Statements
	s.Exec("a", 1)
	s.ExecRows(2, "b", 3, 4)
	if len(s.List) != 2 || s.List[0].Rows != -1 || s.List[1].Rows != 2 || len(s.List[1].Args) != 2 || s.List[1].SQL != "b" {
		t.Errorf("statements: %+v", s.List)
	}
}
