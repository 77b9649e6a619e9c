package attack

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/semeltest/verify"
)

// Report is what an attack found.
type Report struct {
	Handler string `json:"handler"`
	Key     string `json:"key"`
	Seed    uint64 `json:"seed"`
	// Service is where the handler was to send its effects.
	Service string `json:"service"`
	verify.Report
	// Verdict is held, broken or cannot_tell.
	Verdict verify.Verdict `json:"verdict"`
	Took    time.Duration  `json:"took_ns"`
}

// verdict is that of all attacks together.
func (r *Report) verdict() verify.Verdict {
	switch {
	case r.Count(verify.Doubled)+r.Count(verify.Lost)+r.Count(verify.Broken) > 0:
		return verify.Broken
	case r.Count(verify.CannotTell) > 0:
		return verify.CannotTell
	}
	return verify.Held
}

var verdictWords = map[verify.Verdict]struct{ word, colour string }{
	verify.Held: {"held", "32"}, verify.Doubled: {"DOUBLED", "31"}, verify.Lost: {"LOST", "31"},
	verify.Broken: {"BROKEN", "31"}, verify.CannotTell: {"cannot tell", "33"}, verify.Skipped: {"skipped", ""},
}

// WriteText writes the report for a person; colours are for an output.Safe.
func WriteText(w io.Writer, r Report, colour bool, width int) error {
	paint := func(v verify.Verdict, width int) string {
		text := fmt.Sprintf("%-*s", width, verdictWords[v].word)
		if code := verdictWords[v].colour; colour && code != "" {
			return output.Style(code, text)
		}
		return text
	}
	var b strings.Builder
	fmt.Fprintf(&b, "handler  %s\nkey      %s\n\n", words.Printable(r.Handler, 600), words.Printable(r.Key, 600))
	for i := range r.Schedules {
		o := &r.Schedules[i]
		name, text := o.Schedule.Name(), o.Schedule.String()
		if o.Place > 0 {
			name += fmt.Sprintf(" #%d", o.Place)
		}
		if o.Verdict == verify.Skipped {
			text = "skipped: " + o.End
		}
		fmt.Fprintf(&b, "%s  %-18s %s\n", paint(o.Verdict, 11), name, text)
		if o.Verdict != verify.Held && o.Verdict != verify.Skipped {
			fmt.Fprintf(&b, "%32s %s\n", "", seen(o))
		}
	}
	b.WriteString(r.Text(max(60, min(width, 120))))
	fmt.Fprintf(&b, "\n%d held, %d doubled, %d lost, %d cannot tell, %d skipped, in %.1f s, seed %d: %s\n",
		r.Count(verify.Held), r.Count(verify.Doubled), r.Count(verify.Lost), r.Count(verify.CannotTell),
		r.Count(verify.Skipped), r.Took.Seconds(), r.Seed, paint(r.Verdict, 0))
	_, err := io.WriteString(w, b.String())
	return err
}

// seen is what was counted, as a sentence.
func seen(o *verify.Outcome) string {
	out := fmt.Sprintf("%s, %s of %d", words.Count(o.Runs, "run", "runs"), words.Count(o.Happened, "effect", "effects"), o.Want)
	if o.Repeats > 0 {
		out += fmt.Sprintf(", %s recognized", words.Count(o.Repeats, "repeat", "repeats"))
	}
	for i, code := range o.Exits {
		out += [...]string{", ended", ""}[min(i, 1)]
		if code < 0 {
			out += " cut-off"
		} else {
			out += fmt.Sprintf(" %d", code)
		}
	}
	return out
}
