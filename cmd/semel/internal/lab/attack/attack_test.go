package attack_test

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/attack"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/verify"
)

// handler is the test binary with a habit.
func handler(t *testing.T, habit string, args ...string) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{exe, "handler", habit}, args...)
}

// run attacks, and returns the verdicts by attack: its name, and of which effect.
func run(t *testing.T, o attack.Options) (attack.Report, map[string]verify.Verdict) {
	t.Helper()
	if o.Key == "" {
		o.Key = "json:/order_id"
	}
	o.Lease, o.Timeout = 5*time.Second, cmp.Or(o.Timeout, time.Minute) // workers on a slow machine keep both
	rep, err := attack.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]verify.Verdict{}
	for _, a := range rep.Schedules {
		name := a.Schedule.Name()
		if a.Place > 0 {
			name += " " + string(rune('0'+a.Place))
		}
		got[name] = a.Verdict
		if (a.Verdict == skipped) != (a.Findings == 0 && a.Verdict != held) || a.Verdict == skipped && a.End == "" {
			t.Errorf("%s: no reason given: %+v", name, a)
		}
	}
	for _, f := range rep.Findings {
		if f.Why == "" || f.Hint == "" {
			t.Errorf("no reason or no fix given: %+v", f)
		}
	}
	return rep, got
}

func result(t *testing.T, rep attack.Report, name string) verify.Outcome {
	t.Helper()
	i := slices.IndexFunc(rep.Schedules, func(a verify.Outcome) bool { return a.Schedule.Name() == name })
	if i < 0 {
		t.Fatalf("no attack %s", name)
	}
	return rep.Schedules[i]
}

// says is what the report says of an attack: reasons, hints and notes.
func says(rep attack.Report, name string) string {
	out := ""
	for _, f := range rep.Findings {
		if slices.ContainsFunc(append(f.Also, f.Schedule), func(k verify.Kind) bool { return k.Name() == name }) {
			out += f.Why + "\n" + f.Hint + "\n"
		}
	}
	for _, n := range rep.Notes {
		if strings.HasPrefix(n, name+": ") {
			out += n + "\n"
		}
	}
	return out
}

const (
	held    = verify.Held
	doubled = verify.Doubled
	lost    = verify.Lost
	unknown = verify.CannotTell
	skipped = verify.Skipped
)

// habits are handlers, and what each of their mistakes comes to.
var habits = []struct {
	habit string
	want  map[string]verify.Verdict
	// attack and in: the reason or fix of that attack has this text.
	attack, in string
}{
	{"bare", map[string]verify.Verdict{
		"neighbours": held, "redelivery": held, "producer-retry": held, "concurrent": held, "kill-before": held,
		"kill-middle": held,
		"kill-after":  doubled, "worker-killed": doubled, "two-at-once": doubled, "deploy": held, "slow": doubled,
		"response-lost": doubled,
		"error-after":   doubled, "error-before": held, "throttled": held, "unreachable": held, "duplicate-refused": doubled,
		"poison": held,
	}, "kill-after", "send SEMEL_EFFECT_KEY as the header Idempotency-Key"},
	{"forgets", map[string]verify.Verdict{"redelivery": held, "kill-after": doubled, "kill-middle": held}, "kill-after",
		"Idempotency-Key"},
	{"renames", map[string]verify.Verdict{"response-lost": doubled, "two-at-once": doubled}, "response-lost", "the key is made anew"},
	{"careless", map[string]verify.Verdict{
		"response-lost": held, "error-after": held, "error-before": lost, "throttled": lost, "unreachable": lost,
	}, "error-before", "got an error, and reported success all the same"},
	{"drops", map[string]verify.Verdict{"error-before": lost, "redelivery": held}, "error-before", "dropped the message for good"},
	{"quits", map[string]verify.Verdict{"deploy": lost, "kill-middle": held}, "deploy", "let SIGTERM end it"},
	{"swallows", map[string]verify.Verdict{"poison": lost}, "poison", "exit 65"},
	{"blames", map[string]verify.Verdict{"response-lost": held, "error-before": held}, "response-lost",
		"exit 75 means that nothing was applied"},
	{"refuses", map[string]verify.Verdict{"duplicate-refused": held}, "duplicate-refused",
		"ended as a dead letter although its effect is there"},
	{"leaves", map[string]verify.Verdict{"redelivery": held}, "normal", "left processes behind"},
	{"twice", map[string]verify.Verdict{
		"kill-after 1": held, "kill-after 2": doubled, "error-before 1": held, "error-before 2": held,
	}, "kill-after", ""},
}

// TestSharedKey: an effect that has the key of another one is never made, whatever goes wrong or not: no run shows a
// difference, and it is lost all the same. With a key of its own, made as docs/worker.md says, it is there.
func TestSharedKey(t *testing.T) {
	for habit, verdict := range map[string]verify.Verdict{"shares": lost, "repeats": lost, "names": held} {
		t.Run(habit, func(t *testing.T) {
			t.Parallel()
			rep, got := run(t, attack.Options{Argv: handler(t, habit), Only: []string{"redelivery", "kill-after"}})
			a := result(t, rep, "normal")
			if a.Verdict != verdict || rep.OK() != (verdict == held) || a.Want != 4 {
				t.Errorf("normal: %+v, report %s", a, rep.Verdict)
			}
			if verdict == held {
				if got["redelivery"] != held || got["kill-after 1"] != held || got["kill-after 2"] != held || len(rep.Notes) > 0 || a.Happened != 4 {
					t.Errorf("%v, %+v", got, a)
				}
				return
			}
			if rep.Count(lost) != 1 || len(got) != 1 || a.Happened != 2 || len(rep.Notes) != 1 || !strings.Contains(rep.Notes[0], "nothing else was tried") {
				t.Errorf("%v, %+v", got, a)
			}
			if text := says(rep, "normal"); !strings.Contains(text, "POST /charges (effect 1) has the key ") ||
				!strings.Contains(text, `printf %s "$SEMEL_EFFECT_KEY/charges/1" | sha256sum`) {
				t.Error(text)
			}
		})
	}
}

// TestSharedKeyOfAnEndpoint: the same behind a URL, where the key is the request's header.
func TestSharedKeyOfAnEndpoint(t *testing.T) {
	t.Parallel()
	var service atomic.Value
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := service.Load().(string)
		for _, part := range []string{"goods", "shipping"} {
			if _, err := post(at+"/charges", r.Header.Get("Idempotency-Key"), []byte(part)); err != nil {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	rep, got := run(t, attack.Options{HTTP: s.URL, Ready: func(url string) { service.Store(url) }})
	if len(got) != 1 || got["normal"] != lost || !strings.Contains(says(rep, "normal"), "of the request's Idempotency-Key followed by /charges/1") {
		show(t, rep)
		t.Errorf("%v", got)
	}
}

// TestHabits attacks programs with real workers, and pins the verdict of each mistake. What does not break a program with a
// mistake is attacked in nightly runs.
func TestHabits(t *testing.T) {
	for _, h := range habits {
		t.Run(h.habit, func(t *testing.T) {
			t.Parallel()
			o := attack.Options{Argv: handler(t, h.habit)}
			breaks := map[string]bool{}
			for name, v := range h.want {
				if name, _, _ = strings.Cut(name, " "); v != held {
					breaks[name] = true
				}
			}
			if testing.Short() && len(breaks) > 1 {
				t.Skip("-short attacks a few handlers only")
			}
			broken, want := len(breaks) > 0, map[string]verify.Verdict{"normal": held}
			for name, v := range h.want {
				if attack, _, _ := strings.Cut(name, " "); breaks[attack] || !broken || semeltest.Nightly() {
					o.Only, want[name] = append(o.Only, attack), v
				}
			}
			rep, got := run(t, o)
			for name, v := range got {
				if v != want[name] {
					t.Errorf("%s: %s, want %s", name, v, want[name])
				}
			}
			if len(got) != len(want) || rep.OK() == broken {
				t.Errorf("%d of %d attacks, verdict %s", len(got), len(want), rep.Verdict)
			}
			if text := says(rep, h.attack); !strings.Contains(text, h.in) {
				t.Errorf("%s says nothing of %q: %s", h.attack, h.in, text)
			}
			if t.Failed() {
				show(t, rep)
			}
		})
	}
}

func show(t *testing.T, rep attack.Report) {
	t.Helper()
	var b strings.Builder
	if err := attack.WriteText(&b, rep, false, 120); err != nil {
		t.Error(err)
	}
	t.Log(b.String())
}

// TestGoodHandlerHolds is the handler that does what docs/worker.md says: no attack breaks it.
func TestGoodHandlerHolds(t *testing.T) {
	if testing.Short() {
		t.Skip("-short attacks a few handlers only")
	}
	t.Parallel()
	const timeout = time.Minute
	rep, got := run(t, attack.Options{Argv: handler(t, "good"), Timeout: timeout})
	if len(got) != len(attack.List()) || rep.Count(held) != len(got) || !rep.OK() {
		t.Errorf("%d of %d attacks held, verdict %s", rep.Count(held), len(got), rep.Verdict)
		show(t, rep)
	}
	// The kills were real: there was a second run, and where the effect was there already, the service was asked again.
	for name, repeats := range map[string]int{"kill-before": 0, "kill-middle": 0, "kill-after": 1, "worker-killed": 1,
		"two-at-once": 1} {
		a := result(t, rep, name)
		if a.Runs < 2 || a.Repeats < repeats || a.Happened != 1 || a.Took > timeout {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// TestKeyByID: with the message's id as the key a producer's retry is another message.
func TestKeyByID(t *testing.T) {
	t.Parallel()
	rep, got := run(t, attack.Options{Argv: handler(t, "good"), Key: "id", Only: []string{"producer-retry", "redelivery"}})
	if got["producer-retry"] != doubled || got["redelivery"] != held {
		show(t, rep)
		t.Error("verdicts")
	}
	if text := says(rep, "producer-retry"); !strings.Contains(text, "--key json:/order_id") {
		t.Error(text)
	}
}

// TestConstantKey: what is wrong in the plain run is said at once, and nothing is built on it.
func TestConstantKey(t *testing.T) {
	t.Parallel()
	rep, got := run(t, attack.Options{Argv: handler(t, "constant")})
	if len(got) != 1 || got["normal"] != lost || !strings.Contains(says(rep, "normal"), "only the first message takes effect") {
		show(t, rep)
		t.Error("verdict")
	}
}

// TestTakeoverOnce: with it a run in doubt is not repeated, and nothing doubles that has no key.
func TestTakeoverOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("-short attacks a few handlers only")
	}
	t.Parallel()
	rep, got := run(t, attack.Options{
		Argv: handler(t, "bare"), Work: []string{"--takeover", "once"}, Only: []string{"kill-after", "worker-killed"},
	})
	if got["kill-after"] != held || got["worker-killed"] != held {
		show(t, rep)
		t.Error("verdicts")
	}
}

// TestJournal counts what the handler writes itself.
func TestJournal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "effects.jsonl")
	rep, got := run(t, attack.Options{
		Argv: handler(t, "journal", file), Journal: attack.Journal{Place: file},
		Only: []string{"redelivery", "kill-before", "kill-middle", "kill-after", "two-at-once", "response-lost"},
	})
	want := map[string]verify.Verdict{
		"normal": held, "redelivery": held, "kill-before": held, "kill-middle": skipped, "kill-after": doubled,
		"two-at-once":   doubled,
		"response-lost": skipped,
	}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s: %s, want %s", name, got[name], v)
			show(t, rep)
		}
	}
	if a := result(t, rep, "kill-after"); a.Happened != 2 || !strings.Contains(says(rep, "kill-after"), "--effects sql") {
		t.Errorf("%+v", a)
	}
}

// TestBlind: a handler whose effects cannot be seen is not called safe, and the number of its runs is reported.
func TestBlind(t *testing.T) {
	t.Parallel()
	rep, got := run(t, attack.Options{Argv: handler(t, "blind"), Only: []string{"redelivery", "kill-before", "kill-after"}})
	want := map[string]verify.Verdict{"normal": unknown, "redelivery": held, "kill-before": held, "kill-after": unknown}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s: %s, want %s", name, got[name], v)
		}
	}
	if rep.Verdict != unknown || !strings.Contains(says(rep, "normal"), "ATTACK_URL") {
		show(t, rep)
		t.Errorf("verdict %s", rep.Verdict)
	}
}

// endpoint is a handler behind a URL: keyed passes the Idempotency-Key on.
func endpoint(t *testing.T, keyed bool) (url string, ready func(string)) {
	t.Helper()
	var service atomic.Value
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		key := ""
		if keyed {
			key = r.Header.Get("Idempotency-Key")
		}
		switch {
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
			return
		case !strings.Contains(string(body), "amount"):
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		at, _ := service.Load().(string)
		if status, err := post(at+"/charges", key, body); err != nil || status >= 300 && status != http.StatusConflict {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/orders", func(url string) { service.Store(url) }
}

// TestEndpoints attacks handlers behind a URL. All attacks hold for the good one in nightly runs; else those that break the other
// are enough, because TestGoodHandlerHolds has them all.
func TestEndpoints(t *testing.T) {
	if testing.Short() {
		t.Skip("-short attacks a few handlers only")
	}
	t.Run("keyed", func(t *testing.T) {
		t.Parallel()
		url, ready := endpoint(t, true)
		o, want := attack.Options{HTTP: url, Ready: ready}, len(attack.List())-2
		if !semeltest.Nightly() {
			o.Only, want = []string{"redelivery", "kill-before", "kill-middle", "kill-after", "two-at-once", "error-before"}, 6
		}
		rep, got := run(t, o)
		if !rep.OK() || got["kill-middle"] != skipped || rep.Count(held) != want {
			show(t, rep)
			t.Error("verdict")
		}
	})
	t.Run("bare", func(t *testing.T) {
		t.Parallel()
		url, ready := endpoint(t, false)
		rep, got := run(t, attack.Options{
			HTTP: url, Ready: ready,
			Only: []string{"redelivery", "kill-before", "kill-after", "two-at-once", "error-before"},
		})
		want := map[string]verify.Verdict{
			"normal": held, "redelivery": held, "kill-before": held, "kill-after": doubled, "two-at-once": doubled,
			"error-before": held,
		}
		for name, v := range want {
			if got[name] != v {
				t.Errorf("%s: %s, want %s", name, got[name], v)
			}
		}
		if text := says(rep, "kill-after"); !strings.Contains(text, "pass the request's") {
			t.Error(text)
		}
		if t.Failed() {
			show(t, rep)
		}
	})
}
