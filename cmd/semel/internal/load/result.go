package load

import (
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/internal/words"
)

// Result is what a run measured and counted.
type Result struct {
	Verdict string `json:"verdict"`
	N       int    `json:"n"`
	// Done is how many of the messages came to an end.
	Done        int      `json:"done"`
	SameKey     bool     `json:"same_key"`
	Place       string   `json:"place"`
	Concurrency int      `json:"concurrency"`
	HandlerTime string   `json:"handler_time"`
	Visibility  string   `json:"visibility"`
	Rate        float64  `json:"rate,omitempty"`
	Workers     []Worker `json:"workers"`
	// Throughput is messages per second, from the first send to the last end, which took ElapsedMS. Sending took SendingMS.
	Throughput float64     `json:"throughput_per_s"`
	ElapsedMS  float64     `json:"elapsed_ms"`
	SendingMS  float64     `json:"sending_ms"`
	Handler    Percentiles `json:"handler_ms"`
	EndToEnd   Percentiles `json:"end_to_end_ms"`
	// Executed is how often the handler left an effect in its ledger, Keys how many keys have one.
	Executed int `json:"executed"`
	Keys     int `json:"keys"`
	// Suppressed duplicates were found in the records, Deferred ones were returned while the key was at work; Causes
	// say why there were any. Deliveries counts all that came.
	Suppressed int            `json:"suppressed"`
	Deferred   int            `json:"deferred"`
	Causes     map[string]int `json:"causes,omitempty"`
	Deliveries int            `json:"deliveries"`
	Errors     Errors         `json:"errors"`
	Checks     []Check        `json:"checks"`
	Machine    Machine        `json:"machine"`
	// Kept is the folder of the workers' logs, events and effects, where it was kept.
	Kept string `json:"kept,omitempty"`
}

// Worker is one worker process, by what it did.
type Worker struct {
	ID         int `json:"id"`
	PID        int `json:"pid"`
	Deliveries int `json:"deliveries"`
	Handled    int `json:"handled"`
}

// Percentiles of a time, in milliseconds.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Errors counts what went wrong.
type Errors struct {
	Retried   int `json:"retried"`
	Dead      int `json:"dead"`
	Uncertain int `json:"uncertain"`
	Fenced    int `json:"fenced"`
	// Trouble counts calls of queue or store that failed and were repeated, LogLines the ERROR lines in the workers' logs.
	Trouble  int      `json:"trouble"`
	LogLines int      `json:"log_lines"`
	Lines    []string `json:"lines,omitempty"`
}

// Check is something that has to be so.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Machine is what the figures are of.
type Machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
	// Load is the machine's load over a minute, where the system tells it: more than CPUs is a busy machine.
	Load string `json:"load,omitempty"`
}

func machine() Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(b), " ")
	}
	return m
}

// OK tells that all checks say yes.
func (r *Result) OK() bool {
	return !slices.ContainsFunc(r.Checks, func(c Check) bool { return !c.OK })
}

// check compares what was counted with what has to be.
func (r *Result) check(b *bench, t *tally, made map[string]int, left int64, deadLetters int) {
	r.Keys = len(made)
	most := 0
	for _, n := range made {
		r.Executed += n
		most = max(most, n)
	}
	add := func(name string, ok bool, format string, args ...any) {
		r.Checks = append(r.Checks, Check{name, ok, fmt.Sprintf(format, args...)})
	}
	add("sent = done", r.Done == b.N, "%d sent, %d done", b.N, r.Done)
	if b.SameKey {
		skipped := 0
		for _, id := range b.ids {
			if t.ends[id] == semel.Replayed {
				skipped++
			}
		}
		add("executed 1", r.Executed == 1, "%s of the handler", words.Count(r.Executed, "run"))
		add(fmt.Sprintf("suppressed %d", b.N-1), skipped == b.N-1, "%d of %s found in the records", skipped, words.Count(b.N, "message"))
	} else {
		add("executed once each", r.Executed == b.N && most == 1, "%s for %s", words.Count(r.Executed, "run"), words.Count(r.Keys, "key"))
	}
	add("effects = keys", r.Executed == r.Keys, "%s, %s", words.Count(r.Executed, "effect"), words.Count(r.Keys, "key"))
	add("queue empty", left == 0 && deadLetters == 0, "%s left, %s", words.Count(left, "message"), words.Count(deadLetters, "dead letter"))
	add("no ERROR in the logs", r.Errors.LogLines == 0, "%s", words.Count(r.Errors.LogLines, "line"))
	r.Verdict = "ok"
	if !r.OK() {
		r.Verdict = "not ok"
	}
}

// WriteText writes the result for a person.
func (r *Result) WriteText(w io.Writer) error {
	var s strings.Builder
	load := "as fast as they can be sent"
	if r.Rate > 0 {
		load = fmt.Sprintf("%g a second", r.Rate)
	}
	kind := "keys"
	if r.SameKey {
		kind = "messages of one key"
	}
	fmt.Fprintf(&s, "semel bench  %d %s, %d worker processes, %d handlers each of %s, %s\n", r.N, kind, len(r.Workers), r.Concurrency,
		r.HandlerTime, load)
	fmt.Fprintf(&s, "on           %s\n", r.Place)
	busy := ""
	if r.Machine.Load != "" {
		busy = ", load " + r.Machine.Load
	}
	fmt.Fprintf(&s, "machine      %s/%s, %d CPUs, %s%s\n\n", r.Machine.OS, r.Machine.Arch, r.Machine.CPUs, r.Machine.Go, busy)
	fmt.Fprintf(&s, "throughput   %g messages/s (%.2f s from the first send to the last end; sending took %.2f s)\n", r.Throughput,
		r.ElapsedMS/1000, r.SendingMS/1000)
	line := func(name string, p Percentiles) {
		fmt.Fprintf(&s, "%-12s p50 %.1f ms, p95 %.1f ms, p99 %.1f ms, max %.1f ms\n", name, p.P50, p.P95, p.P99, p.Max)
	}
	line("handler", r.Handler)
	line("end to end", r.EndToEnd)
	fmt.Fprintf(&s, "duplicates   %d suppressed%s, %d deferred; %d deliveries of %d messages\n", r.Suppressed, r.causes(), r.Deferred,
		r.Deliveries, r.N)
	e := r.Errors
	fmt.Fprintf(&s, "errors       %d retried, %d dead, %d uncertain, %d fenced, %d calls repeated, %d ERROR lines\n", e.Retried, e.Dead,
		e.Uncertain, e.Fenced, e.Trouble, e.LogLines)
	for _, l := range e.Lines {
		fmt.Fprintf(&s, "             %s\n", l)
	}
	for _, one := range r.Workers {
		fmt.Fprintf(&s, "worker %-5d pid %d: %d deliveries, %d runs\n", one.ID, one.PID, one.Deliveries, one.Handled)
	}
	s.WriteString("\n")
	for _, c := range r.Checks {
		mark := "✓"
		if !c.OK {
			mark = "✗"
		}
		fmt.Fprintf(&s, "%s %-22s %s\n", mark, c.Name, c.Detail)
	}
	if r.Kept != "" {
		fmt.Fprintf(&s, "kept         %s\n", r.Kept)
	}
	s.WriteString("\nFigures are of this machine and this run; sender and workers share it, and each worker writes its events and effects\n" +
		"to files besides. docs/benchmarks.md has measured comparisons.\n")
	_, err := io.WriteString(w, s.String())
	return err
}

// causes are those of the duplicates, for a person.
func (r *Result) causes() string {
	if len(r.Causes) == 0 {
		return ""
	}
	var all []string
	for _, c := range slices.Sorted(maps.Keys(r.Causes)) {
		all = append(all, fmt.Sprintf("%s %d", c, r.Causes[c]))
	}
	return " (" + strings.Join(all, ", ") + ")"
}
