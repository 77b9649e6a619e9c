package source

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

func all(t *testing.T, s Source) (out []driver.Message) {
	t.Helper()
	for {
		m, err := s.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	got := all(t, NewLines(strings.NewReader("a\r\n\n"+long+"\nlast"), Common{Headers: map[string]string{"h": "v"}, Group: "g", Delay: time.Second}))
	var bodies []string
	for _, m := range got {
		bodies = append(bodies, string(m.Body))
		if m.Headers["h"] != "v" || m.Group != "g" || m.Delay != time.Second || m.ID == "" {
			t.Errorf("%+v", m)
		}
	}
	if want := []string{"a\r", "", long, "last"}; !reflect.DeepEqual(bodies, want) {
		t.Errorf("got %.60q", bodies)
	}
}

func TestEnvelopesRefuse(t *testing.T) {
	for in, want := range map[string]string{
		"{}\n[]":                            "line 2",
		`{"body":"a","body_base64":"eA=="}`: "not both",
		`{"body_base64":"%"}`:               "body_base64",
		`{"delay_ms":-1}`:                   "delay_ms",
		`{"delay_ms":9223372036854775807}`:  "delay_ms",
		`{"headers":{"a":1}}`:               "line 1",
		`{} {}`:                             "more than one",
	} {
		e := NewEnvelopes(strings.NewReader(in), Common{})
		var err error
		for err == nil {
			_, err = e.Next()
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

func TestNewID(t *testing.T) {
	now := time.UnixMilli(0x0123456789ab)
	re := regexp.MustCompile("^01234567-89ab-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
	seen := map[string]bool{}
	for range 1000 {
		id := NewID(now)
		if !re.MatchString(id) || seen[id] {
			t.Fatal(id)
		}
		seen[id] = true
	}
}

// The counts are exact, and the same seed makes the same messages.
func TestSynthetic(t *testing.T) {
	s := Synthetic{N: 500, PoisonCount: 37, Duplicates: 0.25, Seed: 7}
	gen := s.New(Common{})
	msgs := all(t, gen)
	if len(msgs) != 625 || gen.Poison != 37 || gen.Doubled != 125 {
		t.Fatalf("%d messages, %d poison, %d doubled", len(msgs), gen.Poison, gen.Doubled)
	}
	ids, bodies, poison := map[string]bool{}, map[string]int{}, 0
	for _, m := range msgs {
		var v struct {
			ID     string
			Work   int
			Poison bool
		}
		if err := json.Unmarshal(m.Body, &v); err != nil || v.Work < 1 || v.Work > 1000 || m.Headers["idempotency-key"] != v.ID {
			t.Fatalf("%s %v %v", m.Body, m.Headers, err)
		}
		if ids[m.ID] {
			t.Fatalf("message id %s twice: a duplicate is another message of the same key", m.ID)
		}
		ids[m.ID] = true
		if bodies[string(m.Body)]++; bodies[string(m.Body)] == 1 && v.Poison {
			poison++
		}
	}
	if len(bodies) != 500 || poison != 37 {
		t.Errorf("%d bodies, %d poison", len(bodies), poison)
	}
	for i, m := range all(t, s.New(Common{})) {
		if string(m.Body) != string(msgs[i].Body) {
			t.Fatalf("message %d differs under the same seed", i)
		}
	}
	s.Seed = 8
	if string(all(t, s.New(Common{}))[0].Body) == string(msgs[0].Body) {
		t.Error("another seed makes the same messages")
	}
}

func TestPoisonEvery(t *testing.T) {
	var at []int
	for i, m := range all(t, Synthetic{N: 10, PoisonEvery: 3, PoisonCount: 9}.New(Common{})) {
		if strings.Contains(string(m.Body), `"poison":true`) {
			at = append(at, i)
		}
	}
	if !reflect.DeepEqual(at, []int{2, 5, 8}) {
		t.Errorf("poison at %v", at)
	}
}
