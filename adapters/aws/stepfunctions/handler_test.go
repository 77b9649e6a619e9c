package stepfunctions_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesfn"
	"github.com/semel-dev/semel/adapters/aws/stepfunctions"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// consume runs a consumer until its queue is empty.
func consume(t *testing.T, db *memory.DB, h semel.Handler, change func(*semel.Config)) {
	t.Helper()
	cfg := semel.Config{
		Queue: db.Queue("uploads"), Store: db.Store(), Handler: h, Key: key.FromJSON("/file"),
	}
	if change != nil {
		change(&cfg)
	}
	c, err := semel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer stop()
		for {
			time.Sleep(100 * time.Millisecond)
			if st, err := db.Queue("uploads").Stats(ctx); err != nil || st.Empty() {
				return
			}
		}
	}()
	if err := c.Run(ctx); err != nil {
		t.Error(err)
	}
}

func send(t *testing.T, db *memory.DB, bodies ...string) {
	t.Helper()
	for _, b := range bodies {
		if err := db.Queue("uploads").Send(t.Context(), semel.Message{Body: []byte(b)}); err != nil {
			t.Fatal(err)
		}
	}
}

func record(t *testing.T, db *memory.DB, raw string) driver.Record {
	t.Helper()
	r, ok, err := db.Store().Record(t.Context(), semel.Key{Consumer: "uploads", Raw: raw})
	if err != nil || !ok {
		t.Fatalf("no record of %s: %v", raw, err)
	}
	return r
}

// TestHandler: a consumer starts one execution for each key, and its record has the ARN.
func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newFixture(t, fakesfn.Options{}, fakesfn.Standard, nil), memory.Open()
		send(t, db, `{"file":"a"}`, `{"file":"b"}`, `{ "file": "a" }`, `{"file":"a"}`)
		consume(t, db, s.starter(awstest.Fault{Operation: "StartExecution", Call: 2, Kind: awstest.After}).Handler(nil), nil)
		s.mustHave(2)
		var e stepfunctions.Execution
		if r := record(t, db, "a"); json.Unmarshal(r.Result, &e) != nil || e.Name != stepfunctions.Name(semel.Key{Raw: "a"}) {
			t.Errorf("the result is %s", r.Result)
		}
	})
}

// TestHandlerWhatItCannotStart: a start that can never succeed is dead-lettered. An error of the service spends no attempt.
func TestHandlerWhatItCannotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newFixture(t, fakesfn.Options{}, fakesfn.Standard, nil), memory.Open()
		if _, _, err := s.starter().Start(t.Context(), "taken", []byte(`{"by":"somebody"}`)); err != nil {
			t.Fatal(err)
		}
		send(t, db, `{"file":"taken"}`, `{"file":"no json"}`, `{"file":"fine"}`)
		s.fake.Deny("StartExecution", true)
		go func() {
			time.Sleep(time.Hour) // many deliveries, and more than MaxAttempts
			s.fake.Deny("StartExecution", false)
		}()
		consume(t, db, s.starter().Handler(func(_ context.Context, a *semel.Attempt) ([]byte, error) {
			if a.Key.Raw == "no json" {
				return []byte("{"), nil
			}
			return a.Body, nil
		}), func(c *semel.Config) { c.MaxAttempts = 2 })
		s.mustHave(2)
		for raw, want := range map[string]driver.State{"taken": driver.FailedState, "no json": driver.FailedState, "fine": driver.Completed} {
			if r := record(t, db, raw); r.State != want || r.Failures > 1 {
				t.Errorf("%s is %s after %d failed runs, want %s", raw, r.State, r.Failures, want)
			}
		}
	})
}

// TestHandlerOfExpress: a run whose start has an unknown outcome, and a run after a dead one, are parked.
func TestHandlerOfExpress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newFixture(t, fakesfn.Options{}, fakesfn.Express, nil), memory.Open()
		lost := s.starter(awstest.Fault{Operation: "StartExecution", Call: 1, Kind: awstest.After})
		lost.AcceptDoubt = true
		send(t, db, `{"file":"lost"}`)
		consume(t, db, lost.Handler(nil), nil)
		s.mustHave(1)

		// A run that died before its start, under the policy Resume.
		_, err := db.Store().Claim(t.Context(), driver.Claim{Key: semel.Key{Consumer: "uploads", Raw: "died"}, Lease: time.Second, Nonce: driver.Nonce{1}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		send(t, db, `{"file":"died"}`, `{"file":"fine"}`)
		consume(t, db, lost.Handler(nil), nil)
		s.mustHave(2)
		for raw, want := range map[string]driver.State{"lost": driver.Uncertain, "died": driver.Uncertain, "fine": driver.Completed} {
			if r := record(t, db, raw); r.State != want || raw == "lost" && r.Attempt != 1 {
				t.Errorf("%s is %s after %d attempts, want %s", raw, r.State, r.Attempt, want)
			}
		}
	})
}

// TestRerunIsAnotherExecution: a completed key that an operator runs again is another execution with another name. A failed
// message that is redriven is the same execution.
func TestRerunIsAnotherExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newFixture(t, fakesfn.Options{}, fakesfn.Standard, nil), memory.Open()
		names := map[string]bool{}
		start := func(epoch uint32) error {
			h := s.starter().Handler(nil)
			a := semel.NewAttempt(semel.Message{Body: []byte(`{"file":"a"}`)}, driver.Grant{
				Verdict: driver.Acquired, Hold: driver.Hold{Key: semel.Key{Raw: "a"}, Epoch: epoch, Generation: epoch + 1, Token: 1},
			}, db.Store())
			err := h.Handle(t.Context(), a)
			for _, e := range s.fake.Executions(machine) {
				names[e.Name] = true
			}
			return err
		}
		if err := errors.Join(start(0), start(0), start(1), start(1), start(2)); err != nil || len(names) != 3 {
			t.Errorf("%d names: %v %v", len(names), names, err)
		}
	})
}
