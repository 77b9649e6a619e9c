package top

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel/driver"
)

var update = flag.Bool("update", false, "rewrite testdata")

// busy is a snapshot with more than a small terminal shows.
func busy(t *testing.T) *Snapshot {
	t.Helper()
	s := &Snapshot{At: time.Unix(1_800_000_000, 0), Queue: "orders"}
	if err := json.Unmarshal([]byte(`{"level":"warn","headline":"The outcome of 3 keys is unknown",
		"next":["Look at the downstream for each uncertain key, then say on its page whether the effect happened.","Find the cause."],
		"stats":{"visible":1204,"in_flight":4,"delayed":1,"oldest_ns":4200000000},"uncertain":[{},{},{}],
		"dead_letters":{"groups":[{"kind":"uncertain","reason":"the run failed, and it is unknown whether its effect happened","count":3}],
		"total":12345,"more":true}}`), &s.Overview); err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		s.Overview.DeadLetters.Groups = append(s.Overview.DeadLetters.Groups,
			driver.DeadLetterGroup{Kind: "failed", Class: fmt.Sprintf("handler responded 422: reason %d \x1b[31mred", i), Count: 500 - i})
		s.Workers = append(s.Workers, Worker{
			Address: fmt.Sprintf("10.0.0.%d:9464", i), Consumer: "orders", Running: 3, Slots: 16, Effects: 1234, Rate: 101.25 - float64(i)*9,
			Deliveries: 1300, Duplicates: map[string]float64{"redelivery": 7, "producer_duplicate": 2},
		})
	}
	s.Workers[1] = Worker{Address: "10.0.0.1:9464", Problem: "connection refused", Rate: -1}
	s.Workers[2].Paused = []string{"store"}
	return s
}

// TestFrame: a frame fits into its terminal, whatever is in it, and no control sequence passes.
func TestFrame(t *testing.T) {
	s := busy(t)
	for _, size := range [][2]int{{80, 24}, {200, 50}, {40, 12}, {20, 3}, {1, 1}} {
		lines := Frame(s, size[0], size[1], true)
		if len(lines) > size[1]+1 || size[1] > 3 && len(lines) != size[1] {
			t.Errorf("%dx%d: %d lines", size[0], size[1], len(lines))
		}
		for _, l := range lines {
			if utf8.RuneCountInString(l) > max(size[0], 2) || strings.ContainsRune(l, '\x1b') {
				t.Errorf("%dx%d: %q", size[0], size[1], l)
			}
		}
	}
	got := strings.Join(Frame(s, 80, 24, false), "\n") + "\n"
	const golden = "testdata/80x24.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || got != string(want) {
		t.Errorf("%v; run with -update and read the difference:\n%s", err, got)
	}
}

// TestLook: figures of several consumers and workers, rates from the second look on, and problems instead of figures.
func TestLook(t *testing.T) {
	effects := 10
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `# TYPE semel_effects_total counter
semel_effects_total{consumer="orders",queue="orders"} %d
semel_effects_total{consumer="mails",queue="mails"} 1
# TYPE semel_deliveries_total counter
semel_deliveries_total{consumer="orders",queue="orders",decision="executed"} 10
semel_deliveries_total{consumer="orders",queue="orders",decision="replayed"} 5
# TYPE semel_duplicates_total counter
semel_duplicates_total{consumer="orders",queue="orders",cause="redelivery"} 5
# TYPE semel_slots gauge
semel_slots{consumer="orders",queue="orders"} 16
# TYPE semel_paused gauge
semel_paused{consumer="orders",queue="orders",reason="store"} 1
`, effects)
	}))
	defer worker.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	s := &Source{Queue: "orders", Workers: []string{strings.TrimPrefix(worker.URL, "http://"), other.URL},
		Overview: func(context.Context) ([]byte, error) { return nil, errors.New("no such database") }}
	now := s.Look(t.Context())
	if now.Overview.Level != "bad" || !strings.Contains(now.Overview.Headline, "no such database") {
		t.Errorf("overview %+v", now.Overview)
	}
	if len(now.Workers) != 3 || now.Workers[0].Consumer != "mails" || now.Workers[2].Problem != "responded 404 Not Found" {
		t.Fatalf("workers %+v", now.Workers)
	}
	w := now.Workers[1]
	if w.Effects != 10 || w.Deliveries != 15 || w.Duplicates["redelivery"] != 5 || w.Slots != 16 || len(w.Paused) != 1 || w.Rate >= 0 {
		t.Errorf("worker %+v", w)
	}
	if d := now.duplicates(); !strings.Contains(d, "33.3 % of 15 deliveries   redelivery 5") {
		t.Error(d)
	}
	effects = 30
	if now = s.Look(t.Context()); now.Workers[1].Rate <= 0 || now.Workers[0].Rate != 0 {
		t.Errorf("rates %v and %v", now.Workers[1].Rate, now.Workers[0].Rate)
	}
	effects = 0 // started again
	if now = s.Look(t.Context()); now.Workers[1].Rate >= 0 {
		t.Errorf("a rate of %v after a restart", now.Workers[1].Rate)
	}
}

// TestLive: it looks every five seconds, not while it is paused, and leaves the terminal as it was.
func TestLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		s := &Source{Overview: func(context.Context) ([]byte, error) {
			looks++
			return fmt.Appendf(nil, `{"level":"good","headline":"look %d"}`, looks), nil
		}}
		keys, press := io.Pipe()
		defer func() { _ = press.Close() }()
		var out bytes.Buffer
		ended := make(chan error, 1)
		go func() { ended <- Live(t.Context(), s, keys, &out, func() (int, int) { return 80, 24 }) }()
		time.Sleep(12 * time.Second)
		synctest.Wait()
		if looks != 3 {
			t.Errorf("%d looks in twelve seconds, want 3", looks)
		}
		_, _ = press.Write([]byte(" "))
		time.Sleep(time.Minute)
		synctest.Wait()
		if looks != 3 || !strings.Contains(out.String(), "PAUSED") {
			t.Errorf("%d looks while paused", looks)
		}
		_, _ = press.Write([]byte(" "))
		time.Sleep(12 * time.Second)
		synctest.Wait()
		if looks != 5 {
			t.Errorf("%d looks, want 5", looks)
		}
		_, _ = press.Write([]byte("q"))
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if text := out.String(); !strings.HasPrefix(text, enter) || !strings.HasSuffix(text, leave) {
			t.Error("the terminal is not left as it was")
		}
	})
}
