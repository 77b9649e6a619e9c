package verify_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/semeltest/verify"
)

// fake is a testing.TB that keeps its failures to itself.
type fake struct {
	testing.TB
	ctx    context.Context
	errors []string
	logs   []string
	fatal  string
}

func (f *fake) Helper()                  {}
func (f *fake) Context() context.Context { return f.ctx }
func (f *fake) Error(args ...any)        { f.errors = append(f.errors, fmt.Sprint(args...)) }
func (f *fake) Log(args ...any)          { f.logs = append(f.logs, fmt.Sprint(args...)) }
func (f *fake) Fatal(args ...any)        { f.fatal = fmt.Sprint(args...); panic(f) }

// handled calls verify.Handler with a fake test.
func handled(t *testing.T, o verify.Options) (f *fake, r *verify.Report) {
	f = &fake{TB: t, ctx: t.Context()}
	defer func() {
		if v := recover(); v != nil && v != any(f) {
			panic(v)
		}
	}()
	return f, verify.Handler(f, o)
}

func TestHandlerFailsTheTest(t *testing.T) {
	f, r := handled(t, verify.Options{
		Messages: []semel.Message{order},
		Worker: calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) error {
			if err := post(ctx, c, bank, "", ""); err != nil {
				return err
			}
			return post(ctx, c, mail, "", "")
		}),
	})
	if len(f.errors) != 2 || len(f.logs) != 1 || f.fatal != "" || r.OK() {
		t.Fatalf("errors %q, logs %q, fatal %q", f.errors, f.logs, f.fatal)
	}
	for i, url := range []string{bank, mail} {
		if e := f.errors[i]; !strings.Contains(e, url) || !strings.Contains(e, "happened twice") || !strings.Contains(e, "hint") {
			t.Errorf("error %d: %s", i, e)
		}
	}
	f, _ = handled(t, verify.Options{
		Messages: []semel.Message{order},
		Worker: func(p *verify.Process) semel.Config {
			return semel.Config{Key: key.FromJSON("/order"), Handler: charge(p.Client(nil))}
		},
	})
	if len(f.errors) > 0 || f.fatal != "" || len(f.logs) != 1 || !strings.Contains(f.logs[0], "25 bad schedules, 25 struck") {
		t.Errorf("errors %q, logs %q, fatal %q", f.errors, f.logs, f.fatal)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := calls(func(context.Context, *http.Client, *semel.Attempt) error { return nil })
	for want, o := range map[string]verify.Options{
		"Worker is nil":        {Messages: []semel.Message{order}},
		"Serve is set":         {Messages: []semel.Message{order}, Worker: good, Serve: serve},
		"Messages is empty":    {Worker: good},
		"Limit is negative":    {Messages: []semel.Message{order}, Worker: good, Limit: -1},
		`the id "m-1" twice`:   {Messages: []semel.Message{order, order}, Worker: effectful},
		"Serve made no store":  {Messages: []semel.Message{order}, Serve: storeless},
		"Serve returned nil":   {Messages: []semel.Message{order}, Serve: silent},
		"Handler: is nil":      {Messages: []semel.Message{order}, Worker: func(*verify.Process) semel.Config { return semel.Config{} }},
		"let Worker open the ": {Messages: []semel.Message{order}, Worker: inTx},
	} {
		f, _ := handled(t, o)
		if !strings.Contains(f.fatal, want) {
			t.Errorf("want an error with %q, got %q", want, f.fatal)
		}
	}
}

func effectful(p *verify.Process) semel.Config {
	return semel.Config{Handler: charge(p.Client(nil))}
}

func inTx(*verify.Process) semel.Config {
	return semel.Config{Handler: semel.InTx(func(context.Context, *sql.Tx, *semel.Attempt) error { return nil })}
}

func storeless(*verify.Process) func(context.Context, semel.Message) error {
	return func(context.Context, semel.Message) error { return nil }
}

func silent(p *verify.Process) func(context.Context, semel.Message) error {
	p.Store(nil)
	return nil
}

func TestRunObeysItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	_, err := verify.Run(ctx, verify.Options{
		Messages: []semel.Message{order},
		Reset: func() {
			if n++; n == 7 {
				cancel()
			}
		},
		Worker: func(p *verify.Process) semel.Config {
			return semel.Config{Key: key.FromJSON("/order"), Handler: charge(p.Client(nil))}
		},
	})
	if !errors.Is(err, context.Canceled) || n != 7 {
		t.Errorf("error %v after %d schedules", err, n)
	}
}

// serve is a correct program without a consumer.
func serve(p *verify.Process) func(context.Context, semel.Message) error { return serving(p, true) }

func serving(p *verify.Process, keyed bool) func(context.Context, semel.Message) error {
	client, store := p.Client(nil), p.Store(nil)
	return func(ctx context.Context, m semel.Message) error {
		raw, err := key.FromJSON("/order")(&m)
		if err != nil {
			return err
		}
		_, _, err = semel.Do(ctx, store, semel.Key{Consumer: "shop", Raw: raw},
			func(ctx context.Context, a *semel.Attempt) (bool, error) {
				key := a.EffectKey("charge")
				if !keyed {
					key = ""
				}
				return true, post(ctx, client, bank, key, "")
			})
		return err
	}
}

// FM3 without a consumer: the same schedules, but those that need a middleware (the end of ctx, a run that fails late).
func TestServe(t *testing.T) {
	r := run(t, verify.Options{Serve: serve})
	wantCauses(t, r)
	if r.Struck() != 14 {
		t.Errorf("%d schedules struck, want 14\n%s", r.Struck(), r)
	}
	for _, o := range r.Schedules {
		if o.End != "completed" {
			t.Errorf("%v: ended %s", o.Schedule, o.End)
		}
	}
	r = run(t, verify.Options{Serve: func(p *verify.Process) func(context.Context, semel.Message) error { return serving(p, false) }})
	wantCauses(t, r, verify.NoKey)
}

// A batch handler in an open transaction of the store: nobody can take over while it lives.
func TestBatch(t *testing.T) {
	r := run(t, verify.Options{Worker: func(p *verify.Process) semel.Config {
		return semel.Config{
			Key: key.FromJSON("/order"),
			Handler: semel.InTxBatch(func(_ context.Context, tx *semel.Statements, batch []*semel.Attempt) error {
				tx.ExecRows(len(batch), "INSERT INTO charges …")
				return nil
			}),
		}
	}})
	wantCauses(t, r)
	if r.Struck() != 6 || len(r.Effects[order.ID]) != 1 {
		t.Errorf("%d schedules struck, effects %v", r.Struck(), r.Effects)
	}
	r = run(t, verify.Options{Worker: func(p *verify.Process) semel.Config {
		client := p.Client(nil)
		return semel.Config{
			Key: key.FromJSON("/order"),
			Handler: semel.InTxBatch(func(ctx context.Context, tx *semel.Statements, _ []*semel.Attempt) error {
				tx.Exec("INSERT INTO charges …")
				return post(ctx, client, bank, "", "")
			}),
		}
	}})
	wantCauses(t, r, verify.NoKey)
}

// The policy once: what is in doubt is parked, and not done again.
func TestOnceIsParked(t *testing.T) {
	r := run(t, verify.Options{Worker: func(p *verify.Process) semel.Config {
		client := p.Client(nil)
		return semel.Config{
			Key: key.FromJSON("/order"), Takeover: semel.Once,
			Handler: semel.HandlerFunc(func(ctx context.Context, _ *semel.Attempt) error { return post(ctx, client, bank, "", "") }),
		}
	}})
	wantCauses(t, r)
	ends := map[string]int{}
	for _, o := range r.Schedules {
		ends[o.End]++
	}
	if ends["uncertain"] < 5 {
		t.Errorf("ends %v: the schedules with a doubt park the key", ends)
	}
}
