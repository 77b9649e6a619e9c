package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

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
	r := &Report{Effects: map[string][]Effect{}}
	found := map[string]int{}
	for i, m := range o.Messages {
		if m.ID == "" {
			m.ID = fmt.Sprintf("message-%d", i+1)
		}
		m.Queue, m.Delay = "", 0
		if _, twice := r.Effects[m.ID]; twice {
			return nil, fieldError("Messages", fmt.Sprintf("has the id %q twice", m.ID), "give each sample another one")
		}
		if err := message(ctx, &judge{opts: &o, report: r, msg: m.ID, found: found}, m); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// message runs all schedules for one message.
func message(ctx context.Context, j *judge, m semel.Message) error {
	r := j.report
	how, ok, err := j.plains(ctx, m)
	if err != nil || !ok {
		return err
	}
	for _, f := range plan(j.plain, how) {
		w, state, err := j.run(ctx, m, f)
		if errors.Is(err, errHangs) {
			j.hangs(w)
			r.Notes = append(r.Notes, fmt.Sprintf("message %q: the schedules after the one that did not end were not run", m.ID))
			return nil
		}
		if err != nil {
			return err
		}
		if !w.struck {
			if f.place >= 0 {
				j.missed(w)
			}
			continue // a run that never completes offers no completion to strike
		}
		out := &r.Schedules[len(r.Schedules)-1]
		out.Findings = j.schedule(w, state)
	}
	return nil
}

// plains runs the plain schedule. ok is false when nothing can be compared with it.
func (j *judge) plains(ctx context.Context, m semel.Message) (how traits, ok bool, err error) {
	others := j.report.Effects
	for i := range plainRuns {
		w, state, err := j.run(ctx, m, fault{place: -1, slow: i > 0})
		if errors.Is(err, errHangs) {
			j.report.Effects[m.ID] = nil
			j.hangs(w)
			return how, false, nil
		}
		if err != nil {
			return how, false, err
		}
		inRuns := slices.DeleteFunc(slices.Clone(w.effects), func(e Effect) bool { return e.Where != "" })
		if i > 0 {
			if !j.repeatable(w, inRuns, state) {
				return how, false, nil
			}
			continue
		}
		how, j.plain, j.state = w.how, inRuns, state
		j.outside(w)
		j.keys(w, others)
		j.report.Effects = withEffects(others, m.ID, inRuns)
		if !w.completed {
			j.add(w, "fails", Finding{
				Cause: Fails, Why: "it became " + w.ended[m.ID],
				Hint: "give a sample message, and fake servers, with which the handler succeeds",
			})
			return how, false, nil
		}
		if len(w.effects) == 0 && j.opts.State == nil {
			j.add(w, "nothing", Finding{
				Cause: NothingRecorded,
				Why:   "no request, statement or effect went through the Process, and there is no Options.State",
				Hint:  "give the handler Process.Client or Transport, Process.DB or Connect, or wrap what it does in Process.Effect",
			})
			return how, false, nil
		}
	}
	duplicated, err := j.sharesKey(ctx, m)
	how.duplicated = duplicated
	return how, err == nil, err
}

func withEffects(all map[string][]Effect, id string, es []Effect) map[string][]Effect {
	all[id] = es
	return all
}

// sharesKey reports whether a message with another id has the same key.
func (j *judge) sharesKey(ctx context.Context, m semel.Message) (bool, error) {
	w, _, err := j.run(ctx, m, fault{kind: DuplicateAfter, place: -1})
	j.report.Schedules = j.report.Schedules[:len(j.report.Schedules)-1] // it runs again when it means something
	if err != nil && !errors.Is(err, errHangs) {
		return false, err
	}
	if w.keyCount() != 1 {
		j.report.Notes = append(j.report.Notes, fmt.Sprintf("message %q: its key is the message id, so a message that its "+
			"producer sends twice takes effect twice; schedules with duplicates were left out (key.FromJSON, or a header)", m.ID))
		return false, nil
	}
	return true, nil
}

// run runs one schedule and adds it to the report.
func (j *judge) run(ctx context.Context, m semel.Message, f fault) (w *world, state any, err error) {
	w = newWorld(ctx, j.opts, m, f)
	err = w.run()
	if ctx.Err() != nil {
		return w, nil, fmt.Errorf("run schedule: %w", context.Cause(ctx))
	}
	out := Outcome{Message: m.ID, Schedule: f.kind, Place: f.place + 1, Struck: w.struck, End: w.end(err)}
	if f.place >= 0 {
		out.Effect = f.target.name
	}
	j.report.Schedules = append(j.report.Schedules, out)
	if err == nil && j.opts.State != nil {
		state = j.opts.State()
	}
	return w, state, err
}

// end is what became of the message.
func (w *world) end(err error) string {
	switch {
	case err != nil:
		return "hangs"
	case w.completed:
		return "completed"
	case w.parked:
		return "uncertain"
	case w.failed:
		return "dead"
	}
	return "rejected"
}

// hangs reports a schedule that did not end.
func (j *judge) hangs(w *world) {
	f := Finding{
		Cause: Hangs,
		Why:   fmt.Sprintf("the handler had not returned, or the message was not settled, after %v", j.opts.Limit),
		Hint:  "give every call a timeout, pass ctx to it, and return when ctx ends; or raise Options.Limit",
	}
	j.add(w, "hangs", f)
}

// missed reports a fault whose effect did not come.
func (j *judge) missed(w *world) {
	j.add(w, "repeatable", Finding{
		Cause: NotRepeatable,
		Why:   fmt.Sprintf("the plain runs did %s; this run did not, before anything went wrong", w.fault.target.name),
		Hint:  "make what it does depend on the message alone",
	})
}
