package ops

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

var began = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

const graceTime = time.Minute

func record(key string, state driver.State, hint ...func(*driver.Record)) driver.Record {
	old := began.Add(-time.Hour)
	r := driver.Record{
		Key: driver.Key{Consumer: "orders", Raw: key}, State: state, Generation: 1, Token: 1, CreatedAt: old, UpdatedAt: old,
	}
	switch state {
	case driver.Completed:
		r.CompletedAt = old
	case driver.InProgress:
		r.LeaseUntil = old.Add(time.Minute)
	default:
	}
	for _, m := range hint {
		m(&r)
	}
	return r
}

func keyOf(key, step string, epoch uint32, v driver.Version) string {
	return semel.EffectKey(driver.Hold{Key: driver.Key{Consumer: "orders", Raw: key}, Epoch: epoch, Version: v}, step)
}

// line is a line of a journal; "#KEY" stands for the effect key of that key.
func lines(s ...string) string { return strings.Join(s, "\n") + "\n" }

func named(key string) string { return fmt.Sprintf(`{"effect_key":%q}`, keyOf(key, "", 0, "")) }

func both(key, effectKey string) string {
	return fmt.Sprintf(`{"key":%q,"effect_key":%q}`, key, effectKey)
}

// run audits and returns what was found, as KIND KEY, sorted.
func run(t *testing.T, s AuditScope, journal string, records ...driver.Record) (*Audit, []string) {
	t.Helper()
	s.Consumer, s.Now, s.Grace, s.AllTenants = "orders", began, graceTime, s.Tenant == ""
	var got []string
	a := NewAudit(s, func(f Finding) error {
		name := f.Key
		if name == "" {
			name = f.EffectKey[:4]
		}
		got = append(got, string(f.Kind)+" "+name)
		return nil
	})
	if err := ReadEffects("journal", strings.NewReader(journal), a.Add); err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := a.Record(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.End(); err != nil {
		t.Fatal(err)
	}
	if a.Found() != len(got) {
		t.Errorf("counted %d findings, reported %d", a.Found(), len(got))
	}
	slices.Sort(got)
	return a, got
}

func TestS1_09_Findings(t *testing.T) {
	dropped := func(r *driver.Record) { r.Reason = "dropped: not for us" }
	epoch := func(r *driver.Record) { r.Epoch = 1 }
	version := func(r *driver.Record) { r.Watermark.Applied, r.Watermark.Running = "v2", "v2" }
	for name, x := range map[string]struct {
		journal string
		records []driver.Record
		want    []string
		extra   int
	}{
		"nothing": {},
		"one effect each": {
			journal: lines(`{"key":"a"}`, named("b"), both("c", keyOf("c", "", 0, ""))),
			records: []driver.Record{record("a", driver.Completed), record("b", driver.Completed), record("c", driver.Completed)},
		},
		"by key and by effect key": {
			journal: lines(`{"key":"a"}`, named("a"), named("b"), both("b", keyOf("b", "", 0, ""))),
			records: []driver.Record{record("a", driver.Completed), record("b", driver.Completed)},
			want:    []string{"duplicate_effect a", "duplicate_effect b"}, extra: 2,
		},
		"three times": {
			journal: lines(`{"key":"a"}`, `{"key":"a"}`, `{"key":"a"}`), records: []driver.Record{record("a", driver.Completed)},
			want: []string{"duplicate_effect a"}, extra: 2,
		},
		"no record": {
			journal: lines(`{"key":"a"}`, `{"key":"b"}`, `{"key":"b"}`),
			want:    []string{"duplicate_effect b", "effect_without_record a", "effect_without_record b"}, extra: 1,
		},
		"no effect": {
			records: []driver.Record{record("a", driver.Completed), record("b", driver.Completed, dropped)},
			want:    []string{"record_without_effect a"},
		},
		"not completed": {
			journal: lines(`{"key":"f"}`, `{"key":"u"}`, `{"key":"r"}`, `{"key":"d"}`),
			records: []driver.Record{
				record("f", driver.FailedState), record("u", driver.Uncertain), record("r", driver.Released),
				record("d", driver.Completed, dropped), record("quiet", driver.FailedState),
			},
			want: []string{"effect_not_completed d", "effect_not_completed f", "effect_not_completed r", "effect_not_completed u"},
		},
		"waits for its retry": {
			journal: lines(`{"key":"r"}`),
			records: []driver.Record{record("r", driver.Released, func(r *driver.Record) { r.RetryAt = began.Add(time.Second) })},
		},
		"orphan": {
			records: []driver.Record{
				record("a", driver.InProgress),
				record("b", driver.InProgress, func(r *driver.Record) { r.LeaseUntil = began.Add(-time.Second) }),
			},
			want: []string{"orphan_claim a"},
		},
		"wrong effect key": {
			journal: lines(both("a", keyOf("b", "", 0, "")), both("c", strings.Repeat("07", 32))),
			records: []driver.Record{record("a", driver.Completed), record("b", driver.Completed), record("c", driver.Completed)},
			want: []string{
				"mismatched_effect_key a", "mismatched_effect_key c", "record_without_effect a", "record_without_effect c",
			},
		},
		"run again on purpose": {
			journal: lines(both("a", keyOf("a", "", 0, "")), both("a", keyOf("a", "", 1, "")), `{"key":"b"}`, `{"key":"b"}`,
				`{"key":"c"}`, `{"key":"c"}`, `{"key":"c"}`),
			records: []driver.Record{
				record("a", driver.Completed, epoch), record("b", driver.Completed, epoch), record("c", driver.Completed, epoch),
			},
			want: []string{"duplicate_effect c"}, extra: 1,
		},
		"versions": {
			journal: lines(both("a", keyOf("a", "", 0, "v1")), both("a", keyOf("a", "", 0, "v2")), `{"key":"b"}`, `{"key":"b"}`,
				both("c", keyOf("c", "", 0, "v2")), both("c", keyOf("c", "", 0, "v2"))),
			records: []driver.Record{
				record("a", driver.Completed, version), record("b", driver.Completed, version), record("c", driver.Completed, version),
			},
			want: []string{"duplicate_effect c"}, extra: 1,
		},
		"of others": {
			journal: lines(`{"key":"a","consumer":"billing"}`),
			records: []driver.Record{record("a", driver.Completed, func(r *driver.Record) { r.Key.Consumer = "billing" })},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, got := run(t, AuditScope{}, x.journal, x.records...)
			if !slices.Equal(got, x.want) {
				t.Errorf("found %q, wanted %q", got, x.want)
			}
			if a.DuplicateEffect != x.extra {
				t.Errorf("%d effects too many, wanted %d", a.DuplicateEffect, x.extra)
			}
		})
	}
}

// TestS1_09_Steps: each step has an effect of its own.
func TestS1_09_Steps(t *testing.T) {
	journal := lines(
		`{"key":"a","step":"charge"}`, `{"key":"a","step":"mail"}`,
		`{"key":"b","step":"charge"}`, `{"key":"b","step":"charge"}`,
		fmt.Sprintf(`{"effect_key":%q}`, keyOf("c", "mail", 0, "")), fmt.Sprintf(`{"effect_key":%q}`, keyOf("c", "charge", 0, "")))
	_, got := run(t, AuditScope{Steps: []string{"charge", "mail"}}, journal,
		record("a", driver.Completed), record("b", driver.Completed), record("c", driver.Completed))
	if want := []string{"duplicate_effect b", "record_without_effect b"}; !slices.Equal(got, want) {
		t.Errorf("found %q, wanted %q", got, want)
	}
	a := NewAudit(AuditScope{Consumer: "orders", Steps: []string{"charge", "mail"}}, nil)
	if err := a.Add(Effect{Key: "a"}); err == nil {
		t.Error("a line that names no step of several was taken")
	}
	if err := a.Add(Effect{Key: "a", Step: "ship"}); err == nil {
		t.Error("a line of an unknown step was taken")
	}
}

// TestS1_09_Range: what is outside of the range, or too recent, is evidence, and judged itself by nobody.
func TestS1_09_Range(t *testing.T) {
	at := func(d time.Duration, key string) string {
		return fmt.Sprintf(`{"key":%q,"at":%q}`, key, began.Add(d).Format(time.RFC3339))
	}
	completed := func(d time.Duration) func(*driver.Record) {
		return func(r *driver.Record) { r.CompletedAt = began.Add(d) }
	}
	scope := AuditScope{Since: began.Add(-2 * time.Hour), Until: began.Add(-10 * time.Minute)}
	a, got := run(t, scope, lines(
		at(-3*time.Hour, "old"),                              // no record, too old
		at(-time.Hour, "none"),                               // no record
		at(-time.Second, "young"),                            // no record, too young
		at(-5*time.Minute, "after"),                          // no record, after the range
		at(-121*time.Minute, "edge"),                         // completed just inside
		at(-3*time.Hour, "two"), at(-170*time.Minute, "two"), // twice, long ago
	),
		record("edge", driver.Completed, completed(-119*time.Minute)),
		record("two", driver.Completed, completed(-150*time.Minute)),
		record("before", driver.Completed, completed(-3*time.Hour)),
		record("inside", driver.Completed, completed(-time.Hour)),
		record("recent", driver.Completed, completed(-time.Second)),
		record("orphan", driver.InProgress, func(r *driver.Record) { r.LeaseUntil = began.Add(-3 * time.Hour) }),
	)
	if want := []string{"effect_without_record none", "record_without_effect inside"}; !slices.Equal(got, want) {
		t.Errorf("found %q, wanted %q", got, want)
	}
	if a.EffectsOutside != 6 || a.UnderWay != 1 || a.Effects != 7 {
		t.Errorf("%d effects, %d outside, %d under way", a.Effects, a.EffectsOutside, a.UnderWay)
	}
}

// TestS1_09_YoungDuplicates: nothing that is under way can undo a second effect, so that no grace hides it.
func TestS1_09_YoungDuplicates(t *testing.T) {
	young := began.Add(-time.Second).Format(time.RFC3339)
	at := func(key string) string { return fmt.Sprintf(`{"key":%q,"at":%q}`, key, young) }
	_, got := run(t, AuditScope{}, lines(at("twice"), at("twice"), at("stray"), at("stray"), at("alone")),
		record("twice", driver.Completed))
	if want := []string{"duplicate_effect stray", "duplicate_effect twice"}; !slices.Equal(got, want) {
		t.Errorf("found %q, wanted %q", got, want)
	}
}

func TestS1_09_Tenants(t *testing.T) {
	tenant := func(name string) func(*driver.Record) { return func(r *driver.Record) { r.Key.Tenant = name } }
	journal := lines(`{"key":"a","tenant":"x"}`, `{"key":"a","tenant":"y"}`)
	records := []driver.Record{record("a", driver.Completed, tenant("x")), record("a", driver.Completed, tenant("z"))}
	if _, got := run(t, AuditScope{}, journal, records...); !slices.Equal(got, []string{"effect_without_record a", "record_without_effect a"}) {
		t.Errorf("all tenants: found %q", got)
	}
	if _, got := run(t, AuditScope{Tenant: "x"}, journal, records...); got != nil {
		t.Errorf("tenant x: found %q", got)
	}
}

func TestReadLines(t *testing.T) {
	want := hex.EncodeToString(make([]byte, 32))
	for _, x := range []struct{ in, want, err string }{
		{in: "", want: ""},
		{in: "\n  \n" + `{"key":"a"}` + "\n\n", want: "a@0"},
		{in: `{"key":7,"at":1777888000.5}`, want: "7@1777888000500"},
		{in: `{"key":"a","at":1777888000500}`, want: "a@1777888000500"},
		{in: `{"key":"a","at":"2026-05-04 09:46:40"}`, want: "a@1777888000000"},
		{in: `{"key":"a","at":"2026-05-04T09:46:40.5Z","amount":12,"more":{"x":[1]}}`, want: "a@1777888000500"},
		{in: `{"effect_key":"` + want + `"}`, want: "@0"},
		{in: `{"key":"a"}` + "\n" + `{"key":"b`, want: "a@0"},
		{in: `{"key":"b` + "\n", err: "journal:1: not a JSON object"},
		{in: `{"key":"a"}` + "\n[]\n", err: "journal:2: not a JSON object"},
		{in: `{"key":"a"} {"key":"b"}` + "\n", err: "journal:1: a journal has one object a line"},
		{in: `{"id":"a"}` + "\n", err: "neither key nor effect_key"},
		{in: `{"effect_key":"abc"}` + "\n", err: `effect_key: "abc" is no effect key`},
		{in: `{"key":"a","at":"yesterday"}` + "\n", err: `at: "yesterday" is no time`},
		{in: `{"key":{}}` + "\n", err: "key: a map[string]interface {} is no text"},
	} {
		var got []string
		err := ReadEffects("journal", strings.NewReader(x.in), func(e Effect) error {
			ms := int64(0)
			if !e.At.IsZero() {
				ms = e.At.UnixMilli()
			}
			got = append(got, fmt.Sprintf("%s@%d", e.Key, ms))
			return nil
		})
		if s := strings.Join(got, " "); x.err == "" && (err != nil || s != x.want) {
			t.Errorf("%s: %q, %v, wanted %q", x.in, s, err, x.want)
		}
		if x.err != "" && (err == nil || !strings.Contains(err.Error(), x.err)) {
			t.Errorf("%s: %v, wanted %q", x.in, err, x.err)
		}
	}
	stop := errors.New("stop")
	if err := ReadEffects("journal", strings.NewReader(`{"key":"a"}`), func(Effect) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the caller's error was returned as %v", err)
	}
}

// BenchmarkAudit measures a million keys: bytes and time for each.
func BenchmarkAudit(b *testing.B) {
	a := NewAudit(AuditScope{Consumer: "orders", AllTenants: true, Now: began}, func(Finding) error { return nil })
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := a.Add(Effect{Key: fmt.Sprintf("order-%09d|charge", i), At: began.Add(-time.Hour)}); err != nil {
			b.Fatal(err)
		}
		if err := a.Record(record(fmt.Sprintf("order-%09d|charge", i), driver.Completed)); err != nil {
			b.Fatal(err)
		}
	}
}
