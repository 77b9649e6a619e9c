package verify

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel"
)

// plainRuns is how often the plain schedule runs, to see whether the handler does the same every time.
const plainRuns = 3

// Handler runs every bad schedule and fails the test with one error for each finding. It returns the report, for tests
// that want to look further.
func Handler(t testing.TB, o Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Findings {
		t.Error(r.Findings[i].String())
	}
	for _, n := range r.Notes {
		t.Log("note: " + n)
	}
	t.Log(r.Summary())
	return r
}

// Run is [Handler] without a test. It returns an error if the schedules could not run: invalid options, a store that
// does not open, ctx done. Mistakes of the handler are in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.resolve(); err != nil {
		return nil, err
	}
	v := &verifier{opts: &o}
	for i, m := range o.Messages {
		if m.ID == "" {
			m.ID = fmt.Sprintf("message-%d", i+1)
		}
		m.Queue, m.Delay = "", 0
		if _, twice := v.Report.Effects[m.ID]; twice {
			return nil, fieldError("Messages", fmt.Sprintf("has the id %q twice", m.ID), "give each sample another one")
		}
		if err := v.message(ctx, m); err != nil {
			return nil, err
		}
	}
	return &v.Report, nil
}

// verifier runs the schedules in this process.
type verifier struct {
	Judge
	opts *Options
}

// message runs all schedules for one message.
func (v *verifier) message(ctx context.Context, m semel.Message) error {
	how, ok, err := v.plains(ctx, m)
	if err != nil || !ok {
		return err
	}
	for _, f := range plan(v.plain, how) {
		_, t, err := v.run(ctx, m, f)
		if err != nil {
			return err
		}
		if t.End != Hanging && !t.Struck && f.place < 0 {
			v.begin(&t) // a run that never completes offers no completion to strike
			continue
		}
		v.Judge.Judge(t)
		if t.End == Hanging {
			v.note(m, "the schedules after the one that did not end were not run")
			return nil
		}
	}
	return nil
}

func (v *verifier) note(m semel.Message, text string) {
	v.Report.Notes = append(v.Report.Notes, fmt.Sprintf("message %q: %s", m.ID, text))
}

// plains runs the plain schedule. ok is false when nothing can be compared with it.
func (v *verifier) plains(ctx context.Context, m semel.Message) (how traits, ok bool, err error) {
	for i := range plainRuns {
		w, t, err := v.run(ctx, m, fault{place: -1, slow: i > 0})
		if err != nil {
			return how, false, err
		}
		if i == 0 {
			how, ok = w.how, v.Plain(t)
		} else {
			ok = v.repeatable(t)
		}
		if !ok {
			return how, false, nil
		}
	}
	w, _, err := v.run(ctx, m, fault{kind: DuplicateAfter, place: -1}) // it runs again when it means something
	if how.duplicated = w.keyCount() == 1; err == nil && !how.duplicated {
		v.note(m, "its key is the message id, so a message that its producer sends twice takes effect twice; schedules with "+
			"duplicates were left out (key.FromJSON, or a header)")
	}
	return how, err == nil, err
}

// run runs one schedule.
func (v *verifier) run(ctx context.Context, m semel.Message, f fault) (*execution, Trial, error) {
	w, began := newExecution(ctx, v.opts, m, f), time.Now()
	err := w.run()
	if ctx.Err() != nil {
		return w, Trial{}, fmt.Errorf("run schedule: %w", context.Cause(ctx))
	}
	if err != nil && !errors.Is(err, errHangs) {
		return w, Trial{}, err
	}
	t := w.trial(err != nil)
	t.Took = time.Since(began)
	if err == nil && v.opts.State != nil {
		t.State = v.opts.State()
	}
	return w, t, nil
}

// trial is what the schedule came to.
func (w *execution) trial(hangs bool) Trial {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := Trial{
		Outcome: Outcome{Message: w.msg.ID, Schedule: w.fault.kind, Place: w.fault.place + 1, Struck: w.struck, End: "rejected"},
		Samples: []Sample{{ID: w.msg.ID, Done: w.completed && !w.deadLettered}},
		Effects: w.effects, Reason: "it became " + w.ended[w.msg.ID], Limit: w.opts.Limit,
	}
	if w.fault.place >= 0 {
		t.Effect = w.fault.target.name
	}
	for _, p := range w.procs {
		t.Runs += p.runs
	}
	switch {
	case hangs:
		t.End, t.Reason = Hanging, ""
	case w.completed:
		t.End, t.Reason = "completed", ""
	case w.parked:
		t.End = "uncertain"
	case w.failed:
		t.End = "dead"
	}
	return t
}
