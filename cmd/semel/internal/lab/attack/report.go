package attack

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// Verdict is the result for the effects.
type Verdict string

// The verdicts.
const (
	Held    Verdict = "held"
	Doubled Verdict = "doubled"
	Lost    Verdict = "lost"
	Unknown Verdict = "cannot_tell"
	// Skipped: the attack makes no sense for this handler.
	Skipped Verdict = "skipped"
	// Broken is of a whole report.
	Broken Verdict = "broken"
)

// Result is one attack's.
type Result struct {
	Attack string `json:"attack"`
	Guard  string `json:"guard"`
	// Effect is which of a run's effects it was about, where an attack is made once for each.
	Effect int    `json:"effect,omitempty"`
	Title  string `json:"title"`
	Did    string `json:"did"`

	Messages   int `json:"messages"`
	Deliveries int `json:"deliveries"`
	Runs       int `json:"runs"`
	// Effects happened; Expected is how many should have. WithKey had an Idempotency-Key, WithoutKey none, Journal came
	// from the journal. Repeats are requests that the service recognized by their key.
	Effects    int `json:"effects"`
	Expected   int `json:"expected"`
	WithKey    int `json:"with_key"`
	WithoutKey int `json:"without_key"`
	Journal    int `json:"journal"`
	Repeats    int `json:"repeats"`
	// Exits are the exit or HTTP statuses of the runs in their order; -1 = a signal, a broken connection, or stopped.
	Exits []int `json:"exits"`

	Verdict Verdict `json:"verdict"`
	Why     string  `json:"why"`
	Hint    string  `json:"hint,omitempty"`
	// Notes are what broke nothing here, and may elsewhere.
	Notes     []string `json:"notes,omitempty"`
	ElapsedMS int64    `json:"elapsed_ms"`
}

// Report is what an attack found.
type Report struct {
	Handler string `json:"handler"`
	Key     string `json:"key"`
	Seed    uint64 `json:"seed"`
	// Service is where the handler was to send its effects.
	Service string   `json:"service"`
	Attacks []Result `json:"attacks"`

	Held    int `json:"held"`
	Doubled int `json:"doubled"`
	Lost    int `json:"lost"`
	Unknown int `json:"cannot_tell"`
	Skipped int `json:"skipped"`
	// Verdict is held, broken or cannot_tell: of the attacks with the guard on, where there are some.
	Verdict   Verdict `json:"verdict"`
	ElapsedMS int64   `json:"elapsed_ms"`
}

// OK reports that every attack was held.
func (r *Report) OK() bool { return r.Verdict == Held }

func (r *Report) sum() {
	judged := guardOff
	for _, a := range r.Attacks {
		if a.Guard == guardOn {
			judged = guardOn
		}
	}
	for _, a := range r.Attacks {
		if a.Guard != judged {
			continue
		}
		switch a.Verdict {
		case Held:
			r.Held++
		case Doubled:
			r.Doubled++
		case Lost:
			r.Lost++
		case Unknown:
			r.Unknown++
		case Skipped, Broken:
			r.Skipped++
		}
	}
	switch {
	case r.Doubled+r.Lost > 0:
		r.Verdict = Broken
	case r.Unknown > 0 || r.Held == 0:
		r.Verdict = Unknown
	default:
		r.Verdict = Held
	}
}

var verdictWords = map[Verdict]string{
	Held: "held", Doubled: "DOUBLED", Lost: "LOST", Unknown: "cannot tell", Skipped: "skipped", Broken: "BROKEN",
}

// WriteText writes the report for a person; colours are for an output.Safe.
func WriteText(w io.Writer, r Report, colour bool, width int) error {
	t := &writer{w: w, colour: colour, width: max(60, min(width, 120)), said: map[string]string{}}
	t.printf("handler  %s\nkey      %s\n\n", printable(r.Handler), printable(r.Key))
	both := false
	for _, a := range r.Attacks {
		both = both || a.Guard != r.Attacks[0].Guard
	}
	guard := ""
	for _, a := range r.Attacks {
		if both && a.Guard != guard {
			t.printf("%s\n", map[string]string{guardOn: "with semel", guardOff: "without: a consumer written by hand"}[a.Guard])
			guard = a.Guard
		}
		t.attack(a)
	}
	t.skipped(r.Attacks)
	t.printf("\n%d held, %d doubled, %d lost, %d cannot tell, %d skipped, in %.1f s, seed %d: %s\n",
		r.Held, r.Doubled, r.Lost, r.Unknown, r.Skipped, float64(r.ElapsedMS)/1000, r.Seed, t.paint(r.Verdict,
			verdictWords[r.Verdict]))
	return t.err
}

type writer struct {
	w      io.Writer
	colour bool
	width  int
	said   map[string]string // the attack that printed it first
	err    error
}

func (t *writer) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, args...)
	}
}

func (t *writer) paint(v Verdict, text string) string {
	code := map[Verdict]string{Held: "32", Doubled: "31", Lost: "31", Broken: "31", Unknown: "33"}[v]
	if !t.colour || code == "" {
		return text
	}
	return output.Style(code, text)
}

// skipped names the attacks that make no sense, by reason.
func (t *writer) skipped(all []Result) {
	var whys []string
	names := map[string][]string{}
	for _, a := range all {
		if a.Verdict != Skipped {
			continue
		}
		if names[a.Why] == nil {
			whys = append(whys, a.Why)
		}
		if !slices.Contains(names[a.Why], a.Attack) {
			names[a.Why] = append(names[a.Why], a.Attack)
		}
	}
	for _, why := range whys {
		t.printf("%-11s  %s\n", verdictWords[Skipped], why)
		t.line("", strings.Join(names[why], ", "))
	}
}

func (t *writer) attack(a Result) {
	if a.Verdict == Skipped {
		return
	}
	name := a.Attack
	if a.Effect > 0 {
		name += fmt.Sprintf(" #%d", a.Effect)
	}
	t.printf("%s  %-18s %s\n", t.paint(a.Verdict, fmt.Sprintf("%-11s", verdictWords[a.Verdict])), name, a.Title)
	switch a.Verdict {
	case Held:
	default:
		t.broken(name, a)
	}
	for _, n := range a.Notes {
		t.line("note", n)
	}
}

// broken prints what happened. A reason or hint that was printed for an earlier attack is not repeated.
func (t *writer) broken(name string, a Result) {
	t.line("did", a.Did)
	t.line("seen", a.seen())
	if first := t.said[a.Guard+a.Why+a.Hint]; first != "" {
		t.line("why", "as for "+first)
		return
	}
	t.said[a.Guard+a.Why+a.Hint] = name
	t.line("why", a.Why)
	if first := t.said[a.Guard+a.Hint]; first != "" {
		t.line("hint", "as for "+first)
	} else if a.Hint != "" {
		t.said[a.Guard+a.Hint] = name
		t.line("hint", a.Hint)
	}
}

// line prints a sentence, broken at the width, behind its label.
func (t *writer) line(label, text string) {
	const indent = 13
	row := fmt.Sprintf("%*s%-5s", indent, "", label)
	empty := len(row)
	for word := range strings.FieldsSeq(printable(text)) {
		if len([]rune(row))+1+len([]rune(word)) > t.width && len(row) > empty {
			t.printf("%s\n", row)
			row = strings.Repeat(" ", empty)
		}
		row += " " + word
	}
	t.printf("%s\n", row)
}

// seen is what was counted, as a sentence.
func (a Result) seen() string {
	out := fmt.Sprintf("%s, %s, %s of %d", output.Count(a.Deliveries, "delivery", "deliveries"), output.Count(a.Runs, "run", "runs"),
		output.Count(a.Effects, "effect", "effects"), a.Expected)
	switch {
	case a.WithKey+a.WithoutKey > 0:
		out += fmt.Sprintf(" (%d with Idempotency-Key, %d without)", a.WithKey, a.WithoutKey)
	case a.Journal > 0:
		out += " (from the journal)"
	}
	if a.Repeats > 0 {
		out += fmt.Sprintf(", %s recognized", output.Count(a.Repeats, "repeat", "repeats"))
	}
	if len(a.Exits) > 0 {
		out += ", ended"
		for _, code := range a.Exits {
			if code < 0 {
				out += " cut-off"
			} else {
				out += fmt.Sprintf(" %d", code)
			}
		}
	}
	return out
}
