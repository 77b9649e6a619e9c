package verify_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/semeltest/verify"
)

type handler = func(ctx context.Context, c *http.Client, a *semel.Attempt) error

// shown is every schedule that shows a finding.
func shown(f *verify.Finding) []verify.Kind { return append([]verify.Kind{f.Schedule}, f.Also...) }

func run(t *testing.T, o verify.Options) *verify.Report {
	t.Helper()
	if o.Messages == nil {
		o.Messages = []semel.Message{order}
	}
	r, err := verify.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantCauses compares the causes of a report, in their order.
func wantCauses(t *testing.T, r *verify.Report, want ...verify.Cause) {
	t.Helper()
	var got []verify.Cause
	for i := range r.Findings {
		got = append(got, r.Findings[i].Cause)
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %v, want %v\n%s", got, want, r)
	}
}

// A handler of one keyed call meets every schedule, each strikes, and each ends with a completed record. A schedule that
// does not run cannot find anything: this test keeps the verifier from passing in silence.
func TestEveryScheduleStrikes(t *testing.T) {
	r := run(t, verify.Options{Worker: calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
		return post(ctx, c, bank, a.EffectKey("charge"), string(a.Body))
	})})
	wantCauses(t, r)
	ran := map[verify.Kind]int{}
	for _, o := range r.Schedules {
		ran[o.Schedule]++
		if o.End != "completed" || o.Struck != (o.Schedule != verify.Plain) {
			t.Errorf("%v: struck %v, ended %s", o.Schedule, o.Struck, o.End)
		}
		if aims := o.Schedule >= verify.CrashAfter && o.Schedule <= verify.DuplicateTakesOver; aims != (o.Place == 1) {
			t.Errorf("%v aims at place %d", o.Schedule, o.Place)
		}
	}
	for k := verify.Plain; k < verify.Kinds; k++ {
		want := 1
		if k == verify.Plain {
			want = 3
		}
		if ran[k] != want {
			t.Errorf("%v: ran %d times, want %d", k, ran[k], want)
		}
	}
	if len(r.Notes) > 0 || !r.OK() || r.Struck() != 16 {
		t.Errorf("%d struck, notes %v", r.Struck(), r.Notes)
	}
}

// mutants are handlers with one mistake each, and the schedules that show it: all of them, and no other.
var mutants = []struct {
	name    string
	handler handler
	cause   verify.Cause
	shown   []verify.Kind
}{
	{"FM3 naked charge", func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
		return post(ctx, c, bank, "", string(a.Body))
	}, verify.NoKey, []verify.Kind{
		verify.CrashAfter, verify.ResponseLost, verify.ResponseLate, verify.Paused, verify.DuplicateTakesOver,
		verify.CrashBeforeComplete, verify.RunFails,
	}},
	{"FM7 naked charge that ignores ctx", func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
		return post(context.WithoutCancel(ctx), c, bank, "", string(a.Body))
	}, verify.NoKey, []verify.Kind{
		verify.CrashAfter, verify.ResponseLost, verify.ResponseLate, verify.LeaseLost, verify.Paused, verify.DuplicateTakesOver,
		verify.CrashBeforeComplete, verify.RunFails,
	}},
	{"key of the attempt", func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
		return post(ctx, c, bank, fmt.Sprint(a.Number), string(a.Body))
	}, verify.UnstableKey, []verify.Kind{
		verify.CrashAfter, verify.ResponseLost, verify.ResponseLate, verify.Paused, verify.DuplicateTakesOver,
		verify.CrashBeforeComplete, verify.RunFails,
	}},
	{"FM28 key of the delivery", func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
		return post(ctx, c, bank, a.ID, string(a.Body))
	}, verify.UnstableKey, []verify.Kind{verify.DuplicateTakesOver}},
	{"PUT of the attempt", func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
		return put(ctx, c, bank, fmt.Sprint(a.Number))
	}, verify.UnstableKey, []verify.Kind{
		verify.CrashAfter, verify.ResponseLost, verify.ResponseLate, verify.Paused, verify.DuplicateTakesOver,
		verify.CrashBeforeComplete, verify.RunFails,
	}},
	{"other content", func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
		return post(ctx, c, bank, a.EffectKey("charge"), fmt.Sprint(a.Number))
	}, verify.OtherContent, []verify.Kind{
		verify.CrashAfter, verify.ResponseLost, verify.ResponseLate, verify.Paused, verify.DuplicateTakesOver,
		verify.CrashBeforeComplete, verify.RunFails,
	}},
	{"swallowed error", func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
		_ = post(ctx, c, bank, a.EffectKey("charge"), string(a.Body))
		return nil
	}, verify.LostEffect, []verify.Kind{verify.NotSent}},
	{"FM5 the second attempt is taken for done", func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
		if a.Number > 1 {
			return nil
		}
		return post(ctx, c, bank, a.EffectKey("charge"), string(a.Body))
	}, verify.LostEffect, []verify.Kind{verify.CrashBefore, verify.NotSent, verify.LeaseLost, verify.CrashAtStart}},
	{"the redelivery is taken for done", func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
		if a.Redelivered {
			return nil
		}
		return post(ctx, c, bank, a.EffectKey("charge"), string(a.Body))
	}, verify.LostEffect, []verify.Kind{verify.CrashBefore, verify.NotSent, verify.LeaseLost, verify.CrashAtStart}},
}

func put(ctx context.Context, c *http.Client, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			r := run(t, verify.Options{Worker: calls(m.handler)})
			wantCauses(t, r, m.cause)
			if len(r.Findings) != 1 {
				return
			}
			f := &r.Findings[0]
			got := shown(f)
			slices.Sort(got)
			slices.Sort(m.shown)
			if !slices.Equal(got, m.shown) {
				t.Errorf("shown by\n%v, want\n%v", got, m.shown)
			}
			if f.Place != 1 || f.Of != 1 || f.Why == "" || f.Hint == "" || f.Message != order.ID {
				t.Errorf("finding is incomplete: %+v", f)
			}
		})
	}
}

// Handlers that are correct pass, also those that do several things at a time, or the same thing several times.
func TestCorrectHandlersPass(t *testing.T) {
	for name, c := range map[string]struct {
		h       handler
		effects int
	}{
		"two steps": {func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			if err := post(ctx, c, bank, a.EffectKey("charge"), ""); err != nil {
				return err
			}
			return post(ctx, c, mail, a.EffectKey("receipt"), "")
		}, 2},
		"goroutines": {func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			errs := make([]error, 3)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() { errs[i] = post(ctx, c, bank, a.EffectKey(fmt.Sprint("charge", i)), "") })
			}
			wg.Wait()
			return errors.Join(errs...)
		}, 3},
		"retries on its own": {func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			err := post(ctx, c, bank, a.EffectKey("charge"), "")
			if err != nil {
				err = post(ctx, c, bank, a.EffectKey("charge"), "")
			}
			return err
		}, 1},
		"PUT": {func(ctx context.Context, c *http.Client, _ *semel.Attempt) error { return put(ctx, c, bank, "5") }, 1},
		"reads too": {func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			resp, err := c.Get(bank)
			if err != nil {
				return err
			}
			resp.Body.Close()
			return post(ctx, c, bank, a.EffectKey("charge"), "")
		}, 1},
		"emits": {func(_ context.Context, _ *http.Client, a *semel.Attempt) error {
			a.Emit(semel.Message{Queue: "mails", Body: a.Body})
			return nil
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, verify.Options{Worker: calls(c.h)})
			wantCauses(t, r)
			if n := len(r.Effects[order.ID]); n != c.effects || r.Struck() < 7 {
				t.Errorf("%d effects, want %d; %d schedules struck", n, c.effects, r.Struck())
			}
		})
	}
}

// One of three calls at the same time has no key: it is found, whatever the order.
func TestGoroutineWithoutKey(t *testing.T) {
	r := run(t, verify.Options{Worker: calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
		var wg sync.WaitGroup
		errs := make([]error, 2)
		wg.Go(func() { errs[0] = post(ctx, c, bank, a.EffectKey("charge"), "") })
		wg.Go(func() { errs[1] = post(ctx, c, mail, "", "") })
		wg.Wait()
		return errors.Join(errs...)
	})})
	wantCauses(t, r, verify.NoKey)
	if len(r.Findings) == 1 && r.Findings[0].Effect != "POST "+mail {
		t.Errorf("blames %s", r.Findings[0].Effect)
	}
}

// A process loses its memory when it dies: a handler that remembers finished work in memory is not idempotent.
func TestMemoryDiesWithTheProcess(t *testing.T) {
	r := run(t, verify.Options{Worker: func(p *verify.Process) semel.Config {
		var done atomic.Bool
		return calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			if done.Load() {
				return nil
			}
			if err := post(ctx, c, bank, "", ""); err != nil {
				return err
			}
			done.Store(true)
			return nil
		})(p)
	}})
	wantCauses(t, r, verify.NoKey)
}

// Mark before the effect: lost when the process dies, or the call fails, in between.
func TestMarkBeforeEffect(t *testing.T) {
	var marked bool
	r := run(t, verify.Options{
		Reset: func() { marked = false },
		Worker: calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			if marked {
				return nil
			}
			marked = true
			return post(ctx, c, bank, a.EffectKey("charge"), "")
		}),
	})
	wantCauses(t, r, verify.LostEffect)
	if f := r.Findings[0]; f.Schedule != verify.CrashBefore || !strings.Contains(f.Hint, "mark nothing") {
		t.Errorf("finding %+v", f)
	}
}
