package attack_test

import (
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

// run attacks, and returns the verdicts by attack: the first word of each, and of which effect.
func run(t *testing.T, o attack.Options) (attack.Report, map[string]attack.Verdict) {
	t.Helper()
	if o.Key == "" {
		o.Key = "json:/order_id"
	}
	o.Lease = 5 * time.Second // workers on a slow machine keep it
	rep, err := attack.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]attack.Verdict{}
	for _, a := range rep.Attacks {
		name := a.Attack
		if a.Effect > 0 {
			name += " " + string(rune('0'+a.Effect))
		}
		if a.Guard == "off" {
			name = "off " + name
		}
		got[name] = a.Verdict
		if a.Verdict != attack.Held && (a.Why == "" || a.Did == "") {
			t.Errorf("%s: no reason given: %+v", name, a)
		}
		if (a.Verdict == attack.Doubled || a.Verdict == attack.Lost) && a.Hint == "" {
			t.Errorf("%s: no fix given: %+v", name, a)
		}
	}
	return rep, got
}

func result(t *testing.T, rep attack.Report, name string) attack.Result {
	t.Helper()
	i := slices.IndexFunc(rep.Attacks, func(a attack.Result) bool { return a.Attack == name })
	if i < 0 {
		t.Fatalf("no attack %s", name)
	}
	return rep.Attacks[i]
}

const (
	held    = attack.Held
	doubled = attack.Doubled
	lost    = attack.Lost
	unknown = attack.Unknown
	skipped = attack.Skipped
)

// habits are handlers, and what each of their mistakes comes to.
var habits = []struct {
	habit string
	want  map[string]attack.Verdict
	// attack and in: the reason or fix of that attack has this text.
	attack, in string
}{
	{"bare", map[string]attack.Verdict{
		"neighbours": held, "redelivery": held, "producer-retry": held, "concurrent": held, "kill-before": held,
		"kill-middle": held,
		"kill-after":  doubled, "worker-killed": doubled, "two-at-once": doubled, "deploy": held, "slow": doubled,
		"response-lost": doubled,
		"error-after":   doubled, "error-before": held, "throttled": held, "unreachable": held, "duplicate-refused": doubled,
		"poison": held,
	}, "kill-after", "send SEMEL_EFFECT_KEY as the header Idempotency-Key"},
	{"forgets", map[string]attack.Verdict{"redelivery": held, "kill-after": doubled, "kill-middle": held}, "kill-after",
		"Idempotency-Key"},
	{"renames", map[string]attack.Verdict{"response-lost": doubled, "two-at-once": doubled}, "response-lost", "2 different values"},
	{"careless", map[string]attack.Verdict{
		"response-lost": held, "error-after": held, "error-before": lost, "throttled": lost, "unreachable": lost,
	}, "error-before", "exits 0 although its request failed"},
	{"drops", map[string]attack.Verdict{"error-before": lost, "redelivery": held}, "error-before", "drops a message for good"},
	{"quits", map[string]attack.Verdict{"deploy": lost, "kill-middle": held}, "deploy", "let SIGTERM end it"},
	{"swallows", map[string]attack.Verdict{"poison": lost}, "poison", "exit 65"},
	{"blames", map[string]attack.Verdict{"response-lost": held, "error-before": held}, "response-lost",
		"exit 75 means that nothing was applied"},
	{"refuses", map[string]attack.Verdict{"duplicate-refused": held}, "duplicate-refused",
		"ended as a dead letter although its effect is there"},
	{"leaves", map[string]attack.Verdict{"redelivery": held}, "normal", "left processes behind"},
	{"twice", map[string]attack.Verdict{
		"kill-after 1": held, "kill-after 2": doubled, "error-before 1": held, "error-before 2": held,
	}, "kill-after", ""},
}

// TestSharedKey: an effect that has the key of another one is never made, whatever goes wrong or not: no run shows a
// difference, and it is lost all the same. With a key of its own, made as docs/worker.md says, it is there.
func TestSharedKey(t *testing.T) {
	for habit, verdict := range map[string]attack.Verdict{"shares": lost, "repeats": lost, "names": held} {
		t.Run(habit, func(t *testing.T) {
			t.Parallel()
			rep, got := run(t, attack.Options{Argv: handler(t, habit), Only: []string{"redelivery", "kill-after"}})
			a := result(t, rep, "normal")
			if a.Verdict != verdict || rep.OK() != (verdict == held) || a.Expected != 4 {
				t.Errorf("normal: %+v, report %s", a, rep.Verdict)
			}
			if verdict == held {
				if got["redelivery"] != held || got["kill-after 1"] != held || got["kill-after 2"] != held || len(a.Notes) > 0 || a.Effects != 4 {
					t.Errorf("%v, %+v", got, a)
				}
				return
			}
			if rep.Lost != 1 || len(got) != 1 || a.Effects != 2 || len(a.Notes) != 1 || !strings.Contains(a.Notes[0], "nothing else was tried") {
				t.Errorf("%v, %+v", got, a)
			}
			if !strings.Contains(a.Why, "POST /charges was requested 2 times in one run under one Idempotency-Key") ||
				!strings.Contains(a.Hint, `printf %s "$SEMEL_EFFECT_KEY/charges/1" | sha256sum`) {
				t.Errorf("why %s, fix %s", a.Why, a.Hint)
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
	if len(got) != 1 || got["normal"] != lost || !strings.Contains(rep.Attacks[0].Hint, "of the request's Idempotency-Key followed by /charges/1") {
		show(t, rep)
		t.Errorf("%v", got)
	}
}

// TestHabits attacks programs with real workers, and pins the verdict of each mistake.
func TestHabits(t *testing.T) {
	for _, h := range habits {
		t.Run(h.habit, func(t *testing.T) {
			t.Parallel()
			o := attack.Options{Argv: handler(t, h.habit)}
			for name := range h.want {
				name, _, _ = strings.Cut(name, " ")
				o.Only = append(o.Only, name)
			}
			rep, got := run(t, o)
			want := map[string]attack.Verdict{"normal": held}
			broken := false
			for name, v := range h.want {
				want[name] = v
				broken = broken || v != held
			}
			for name, v := range got {
				if v != want[name] {
					t.Errorf("%s: %s, want %s", name, v, want[name])
				}
			}
			if len(got) != len(want) || rep.OK() == broken {
				t.Errorf("%d of %d attacks, verdict %s", len(got), len(want), rep.Verdict)
			}
			a := result(t, rep, h.attack)
			if text := a.Why + a.Hint + strings.Join(a.Notes, " "); !strings.Contains(text, h.in) {
				t.Errorf("%s says nothing of %q: %+v", h.attack, h.in, a)
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
	if len(got) != len(attack.List()) || rep.Held != len(got) || !rep.OK() {
		t.Errorf("%d of %d attacks held, verdict %s", rep.Held, len(got), rep.Verdict)
		show(t, rep)
	}
	// The kills were real: there was a second run, and where the effect was there already, the service was asked again.
	for name, repeats := range map[string]int{"kill-before": 0, "kill-middle": 0, "kill-after": 1, "worker-killed": 1,
		"two-at-once": 1} {
		a := result(t, rep, name)
		if a.Runs < 2 || a.Repeats < repeats || a.Effects != 1 || a.ElapsedMS > timeout.Milliseconds() {
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
	if a := result(t, rep, "producer-retry"); !strings.Contains(a.Hint, "--key json:/order_id") {
		t.Errorf("hint %q", a.Hint)
	}
}

// TestConstantKey: what is wrong in the plain run is said at once, and nothing is built on it.
func TestConstantKey(t *testing.T) {
	t.Parallel()
	rep, got := run(t, attack.Options{Argv: handler(t, "constant")})
	if len(got) != 1 || got["normal"] != lost || !strings.Contains(rep.Attacks[0].Why, "of another message") {
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
	want := map[string]attack.Verdict{
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
	if a := result(t, rep, "kill-after"); a.Journal != 2 || !strings.Contains(a.Hint, "--effects sql") {
		t.Errorf("%+v", a)
	}
}

// TestBlind: a handler whose effects cannot be seen is not called safe, and the number of its runs is reported.
func TestBlind(t *testing.T) {
	t.Parallel()
	rep, got := run(t, attack.Options{Argv: handler(t, "blind"), Only: []string{"redelivery", "kill-before", "kill-after"}})
	want := map[string]attack.Verdict{"normal": unknown, "redelivery": held, "kill-before": held, "kill-after": unknown}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s: %s, want %s", name, got[name], v)
		}
	}
	if rep.Verdict != unknown || !strings.Contains(rep.Attacks[0].Why, "did not call the service") {
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

// TestEndpoints attacks handlers behind a URL.
func TestEndpoints(t *testing.T) {
	if testing.Short() {
		t.Skip("-short attacks a few handlers only")
	}
	t.Run("keyed", func(t *testing.T) {
		t.Parallel()
		url, ready := endpoint(t, true)
		rep, got := run(t, attack.Options{HTTP: url, Ready: ready})
		if !rep.OK() || got["kill-middle"] != skipped || rep.Held != len(attack.List())-2 {
			show(t, rep)
			t.Error("verdict")
		}
	})
	t.Run("keyed, guard off", func(t *testing.T) {
		t.Parallel()
		url, ready := endpoint(t, true)
		rep, got := run(t, attack.Options{HTTP: url, Ready: ready, Guards: []string{"off"}, Only: []string{"redelivery"}})
		if got["off normal"] != held || got["off redelivery"] != doubled {
			show(t, rep)
			t.Error("there is nobody who could give a key")
		}
	})
	t.Run("bare", func(t *testing.T) {
		t.Parallel()
		url, ready := endpoint(t, false)
		rep, got := run(t, attack.Options{
			HTTP: url, Ready: ready, Guards: []string{"off", "on"},
			Only: []string{"redelivery", "kill-before", "kill-after", "two-at-once", "error-before"},
		})
		want := map[string]attack.Verdict{
			"normal": held, "redelivery": held, "kill-before": held, "kill-after": doubled, "two-at-once": doubled,
			"error-before": held,
			"off normal":   held, "off redelivery": doubled, "off kill-before": held, "off kill-after": doubled,
			"off two-at-once":  doubled,
			"off error-before": held,
		}
		for name, v := range want {
			if got[name] != v {
				t.Errorf("%s: %s, want %s", name, got[name], v)
			}
		}
		if a := result(t, attack.Report{Attacks: rep.Attacks[6:]}, "kill-after"); !strings.Contains(a.Hint, "pass the request's") {
			t.Errorf("hint %q", a.Hint)
		}
		if t.Failed() {
			show(t, rep)
		}
	})
}

// TestGuardOff: the consumer that people write by hand doubles what semel holds.
func TestGuardOff(t *testing.T) {
	if testing.Short() {
		t.Skip("-short attacks a few handlers only")
	}
	t.Parallel()
	rep, got := run(t, attack.Options{
		Argv: handler(t, "good"), Guards: []string{"off"}, Only: []string{"redelivery", "concurrent", "worker-killed",
			"error-before"},
	})
	want := map[string]attack.Verdict{
		"off normal": held, "off redelivery": doubled, "off concurrent": doubled, "off worker-killed": doubled,
		"off error-before": held,
	}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s: %s, want %s", name, got[name], v)
		}
	}
	if rep.Verdict != attack.Broken || t.Failed() {
		show(t, rep)
		t.Errorf("verdict %s", rep.Verdict)
	}
}
