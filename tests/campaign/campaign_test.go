package main

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/tests/internal/crew"
)

func TestMain(m *testing.M) {
	crew.MainIfWorker()
	os.Exit(m.Run())
}

// campaigned runs a campaign with the flags.
func campaigned(t *testing.T, args ...string) result {
	t.Helper()
	server.Need(t, "postgres")
	c, err := parse(args)
	if err != nil {
		t.Fatal(err)
	}
	c.say = t.Logf
	r, err := run(t.Context(), c)
	if err != nil {
		t.Fatalf("campaign %v: %v", args, err)
	}
	return r
}

// TestCampaign is a small campaign with every kind of fault.
func TestCampaign(t *testing.T) {
	n := 20_000 / semeltest.Sampled(3)
	r := campaigned(t, "-messages", strconv.Itoa(n), "-kills", "8", "-freezes", "2", "-restarts", "2", "-seed", "7",
		"-backlog", strconv.Itoa(n/5))
	if !r.Held {
		t.Errorf("not held: %s", r.words())
	}
	t.Log(r.words())
	if r.Kills != 8 || r.Stops != 1 || r.ServerKills != 1 || r.Freezes == 0 {
		t.Errorf("%d kills, %d freezes, %d immediate stops, %d kills of the server: not what was asked for",
			r.Kills, r.Freezes, r.Stops, r.ServerKills)
	}
	if r.Keys < n*15/20 || r.Keys > n*17/20 {
		t.Errorf("%d keys of %d messages with 20 %% duplicates", r.Keys, n)
	}
}

// TestPlantedInboxes runs the same on inboxes with a mistake: a verdict that finds nothing there proves nothing.
func TestPlantedInboxes(t *testing.T) {
	for guard, failed := range map[string]func(crew.Verdict) bool{
		"off":   func(v crew.Verdict) bool { return v.Doubled > 0 },
		"first": func(v crew.Verdict) bool { return v.Lost > 0 },
	} {
		t.Run(guard, func(t *testing.T) {
			r := campaigned(t, "-guard", guard, "-messages", "6000", "-kills", "8", "-freezes", "0", "-restarts", "1", "-backlog", "1000",
				"-visibility", "500ms")
			if r.Held || !failed(r.Verdict) {
				t.Errorf("held %v: the planted mistake was not found: %v", r.Held, r.Verdict)
			}
		})
	}
}

func TestSeedRepeatsMessagesAndFaults(t *testing.T) {
	a, b, other := crew.NewMessages(3, 0.2), crew.NewMessages(3, 0.2), crew.NewMessages(4, 0.2)
	x, y, z := a.Next(1000), b.Next(1000), other.Next(1000)
	same := 0
	for i := range x {
		if string(x[i].Body) != string(y[i].Body) || x[i].ID != y[i].ID {
			t.Fatalf("message %d differs under the same seed", i)
		}
		if string(x[i].Body) == string(z[i].Body) {
			same++
		}
	}
	if same == len(x) {
		t.Error("another seed makes the same messages")
	}
	if a.Keys < 750 || a.Keys > 850 {
		t.Errorf("%d keys of 1000 messages with 20 %% duplicates", a.Keys)
	}
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range [][]string{
		{"-modes", "a2,x"}, {"-guard", "maybe"}, {"-duplicates", "1"}, {"-messages", "0"}, {"-kills", "-1"}, {"more"},
	} {
		if c, err := parse(args); err == nil {
			t.Errorf("%v became %+v", args, c)
		}
	}
	c, err := parse(nil)
	if err != nil || c.messages != 200_000 || c.visibility != 2*time.Second || len(c.modes) < 2 {
		t.Errorf("defaults %+v, %v", c, err)
	}
}
