package model

import (
	"errors"
	"fmt"

	"pgregory.net/rapid"

	"github.com/semel-dev/semel/driver"
)

// drawVersion gives half of the keys versions, and every now and then a claim what its key does not have.
func (w *comparison) drawVersion(c *driver.Claim) {
	version := func(label string) driver.Version {
		return driver.TextVersion(rapid.SampledFrom([]string{"1", "2", "3", "4", "5"}).Draw(w.t, label))
	}
	has := len(c.Key.Raw)%2 == 0 // key-10 and those after it
	if rapid.IntRange(0, 15).Draw(w.t, "strange") == 0 {
		has = !has
	}
	if !has {
		return
	}
	c.Version = version("version")
	if rapid.IntRange(0, 2).Draw(w.t, "gaps") == 0 {
		if c.After = version("after"); c.After >= c.Version {
			c.After = ""
		}
		c.NoWait = rapid.IntRange(0, 3).Draw(w.t, "skip gap") == 0
	}
}

var stepNames = []string{"", "pay", "ship", "mail"}

func (w *comparison) drawStep() driver.StepWrite {
	kinds := []driver.StepWriteKind{
		driver.RegisterStep, driver.RegisterStep, driver.StartStep, driver.FinishStep, driver.FinishStep, driver.CompensateRun,
		driver.UndoStep, driver.FailUndo, driver.FinishUndo,
	}
	s := driver.StepWrite{
		Kind: rapid.SampledFrom(kinds).Draw(w.t, "kind"), Name: rapid.SampledFrom(stepNames[1:]).Draw(w.t, "step"),
		Undo: rapid.Bool().Draw(w.t, "undo"), Again: rapid.IntRange(0, 4).Draw(w.t, "again") == 0,
		Result: rapid.SampledFrom([][]byte{nil, []byte("done")}).Draw(w.t, "result"), Failures: rapid.IntRange(1, 2).Draw(w.t, "failures"),
		Reason: rapid.SampledFrom([]string{"", "why"}).Draw(w.t, "reason"),
	}
	if s.Kind == driver.CompensateRun {
		s.Name = ""
	}
	return s
}

// steps writes a journal, mostly that of the present attempt, and compares what is there afterwards.
func (w *comparison) steps(rt *rapid.T) {
	a := w.someAttempts(rt)[0]
	if all := w.attemptsOf(a.key); rapid.IntRange(0, 3).Draw(rt, "present") > 0 {
		a = all[len(all)-1]
	}
	var ws []driver.StepWrite
	for range rapid.IntRange(1, 3).Draw(rt, "writes") {
		ws = append(ws, w.drawStep())
	}
	carries := rapid.Bool().Draw(rt, "effects")
	culprit := rapid.IntRange(-2*len(ws), len(ws)-1).Draw(rt, "culprit")
	w.runs++
	id := fmt.Sprint("step-", w.runs)
	out, errs := both(w, "steps", func(s *side, n int) (driver.Outcome, error) {
		mine := append([]driver.StepWrite(nil), ws...)
		for i := range mine {
			if carries && (mine[i].Kind == driver.FinishStep || mine[i].Kind == driver.FinishUndo) {
				mine[i].Effects = s.buffer([]string{id, id + mine[i].Name}, i == culprit)
			}
		}
		return s.WriteSteps(rt.Context(), a.holds[n], mine...)
	})
	if errs[0] == nil && out[0] != out[1] {
		rt.Fatalf("steps %+v of key %q: memory returned %v, the other %v", ws, a.key.Raw, out[0], out[1])
	}
	for _, err := range errs {
		var item *driver.ItemError
		if err != nil && (!errors.As(err, &item) || item.Index != culprit) {
			rt.Fatalf("steps returned %v, wanted write %d refused", err, culprit)
		}
	}
	w.sameSteps(rt, a)
}

func (w *comparison) sameSteps(rt *rapid.T, a attempt) {
	rows, errs := both(w, "read steps", func(s *side, n int) ([]driver.Step, error) { return s.Steps(rt.Context(), a.holds[n]) })
	if errs[0] != nil {
		rt.Fatal(errs)
	}
	var text [2]string
	for i := range text {
		for _, s := range rows[i] {
			text[i] += fmt.Sprintf("%d %q %v undo %v nonce %x result %q failures %d reason %q own %v\n", s.Seq, s.Name, s.State, s.Undo, s.Nonce,
				s.Result, s.Failures, s.Reason, s.Token == a.holds[i].Token)
		}
	}
	if text[0] != text[1] {
		rt.Fatalf("steps of key %q: memory has\n%sthe other has\n%s", a.key.Raw, text[0], text[1])
	}
}

// sameAudit compares the audit logs.
func (w *comparison) sameAudit(rt *rapid.T) {
	entries, errs := both(w, "audit", func(s *side, _ int) ([]driver.AuditEntry, error) {
		return s.Audit(rt.Context(), driver.AuditFilter{})
	})
	if errs[0] != nil {
		rt.Fatal(errs)
	}
	var text [2]string
	for i := range text {
		for _, e := range entries[i] {
			text[i] += fmt.Sprintf("%v by %q: %q gen %d %v to %v %q %v %v\n", e.Kind, e.By, e.Key.Raw, e.Generation, e.From, e.To, e.Reason,
				e.Verified, e.Renewed)
		}
	}
	if text[0] != text[1] {
		rt.Fatalf("audit log: memory has\n%sthe other has\n%s", text[0], text[1])
	}
}
