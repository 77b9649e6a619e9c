package sim

import (
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/semel-dev/semel/internal/machine"
)

// trace is the readable history of one simulation.
type trace struct {
	lines []line
	hash  hash.Hash // when only equality matters
}

type line struct {
	key  int // -1: it concerns all
	text string
}

// add writes a line. Callers check for nil first, so that nothing is formatted without a trace.
func (t *trace) add(w *world, key int, format string, args ...any) {
	text := fmt.Sprintf("%10.3fs  ", w.now.Seconds()) + fmt.Sprintf(format, args...)
	if t.hash != nil {
		_, _ = io.WriteString(t.hash, text+"\n") // a hash never fails
		return
	}
	t.lines = append(t.lines, line{w.base(key), text})
}

// write prints the lines of a key, or all for -1, numbered.
func (t *trace) write(out io.Writer, key int) error {
	n := 0
	for _, l := range t.lines {
		if key >= 0 && l.key >= 0 && l.key != key {
			continue
		}
		n++
		if _, err := fmt.Fprintf(out, "%4d %s\n", n, l.text); err != nil {
			return err
		}
	}
	return nil
}

func (t *trace) response(w *world, k *worker, r *request, ev *machine.Event) {
	if ev.Err != nil {
		t.add(w, -1, "worker %d: %s of %d returns: %v", k.id, actionNames[r.kind], len(r.items), ev.Err)
	}
}

var actionNames = [...]string{
	machine.ActionReceive: "receive", machine.ActionClaim: "claim", machine.ActionRun: "run", machine.ActionCancel: "cancel",
	machine.ActionFinish: "finish", machine.ActionSettle: "settle", machine.ActionExtend: "extend", machine.ActionProlong: "prolong",
	machine.ActionBegin: "begin", machine.ActionCommit: "commit", machine.ActionRollback: "roll back", machine.ActionTrace: "trace",
	machine.ActionStop: "stop",
}

// tell prints the history of a seed, and its verdict.
func (t *trace) tell(out io.Writer, seed uint64, v *Violation) error {
	if err := t.write(out, -1); err != nil {
		return fmt.Errorf("print the history of seed %d: %w", seed, err)
	}
	verdict := "no invariant is violated"
	if v != nil {
		verdict = v.String()
	}
	if _, err := fmt.Fprintln(out, verdict); err != nil {
		return fmt.Errorf("print the verdict of seed %d: %w", seed, err)
	}
	return nil
}

// evidence is the history of a key, of a seed that was simulated again to write it down.
func (t *trace) evidence(v, again *Violation, key int) string {
	var b strings.Builder
	_ = t.write(&b, key) // a strings.Builder never fails
	if again == nil || again.Detail != v.Detail {
		b.WriteString("(the history above is not the violating one: the simulator is not deterministic)\n")
	}
	return b.String()
}
