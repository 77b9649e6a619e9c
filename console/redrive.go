package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/ops"
)

// tally counts what became of dead letters, or would.
type tally struct {
	Redriven  int `json:"redriven"`
	Dropped   int `json:"dropped"`
	Discarded int `json:"discarded"`
	// Refused dead letters stay. Examples are the first of them.
	Refused  int          `json:"refused"`
	Examples []ops.Result `json:"examples,omitempty"`
}

func (t *tally) add(res ops.Result) {
	switch res.Outcome {
	case ops.Redriven:
		t.Redriven++
	case ops.Discarded:
		t.Discarded++
	case ops.Refused:
		if t.Refused++; len(t.Examples) < 10 {
			t.Examples = append(t.Examples, res)
		}
	default: // completed, stale or overtaken
		t.Dropped++
	}
}

// planView is what a redrive would do.
type planView struct {
	tally

	Mode   string   `json:"mode"`
	IDs    []string `json:"ids"`
	Total  int      `json:"total"`
	Canary int      `json:"canary"`
}

// chosen are the dead letters of a form: those of its ids, else those of its kind and group.
func (c *Console) chosen(r *http.Request) ([]driver.DeadLetter, error) {
	ids := r.PostForm["id"]
	if len(ids) == 0 {
		if r.PostForm.Get("kind") == "" && r.PostForm.Get("group") == "" {
			return nil, refusal(http.StatusBadRequest, "no dead letter is chosen: select some, or a group")
		}
		v, err := c.list(r.Context(), driver.DeadLetterKind(r.PostForm.Get("kind")), r.PostForm.Get("group"))
		if err != nil {
			return nil, err
		}
		for _, l := range v.Items {
			ids = append(ids, l.ID)
		}
	}
	var out []driver.DeadLetter
	for _, id := range ids {
		l, ok, err := c.queue.DeadLetters.DeadLetter(r.Context(), id)
		if err != nil {
			return nil, err
		}
		if ok && c.ours(&l) {
			out = append(out, l)
		}
	}
	if len(out) == 0 {
		return nil, refusal(http.StatusConflict, "none of these dead letters is left: they were redriven or discarded meanwhile")
	}
	return out, nil
}

// chosenWithMode are the dead letters of a form, and what to do with keys whose effect may have happened.
func (c *Console) chosenWithMode(r *http.Request) ([]driver.DeadLetter, ops.Mode, error) {
	m := cmp.Or(ops.Mode(r.PostForm.Get("mode")), ops.Skip)
	if !slices.Contains([]ops.Mode{ops.Skip, ops.Verify, ops.Rerun}, m) {
		return nil, m, refusal(http.StatusBadRequest, "mode is %q: it is skip, verify or rerun", m)
	}
	ls, err := c.chosen(r)
	return ls, m, err
}

func (c *Console) options(r *http.Request, keep driver.State) (o ops.Options, err error) {
	o = ops.Options{By: c.cfg.By(r), Reason: strings.TrimSpace(r.PostForm.Get("reason"))}
	if o.Reason == "" {
		return o, refusal(http.StatusBadRequest, "reason is empty: why, for the audit log?")
	}
	o.Keep, err = c.cfg.Keep(keep)
	return o, err
}

// plan does a redrive as a dry run.
func (c *Console) plan(r *http.Request) (view, error) {
	ls, m, err := c.chosenWithMode(r)
	if err != nil {
		return nil, err
	}
	v := planView{Mode: string(m), Total: len(ls), Canary: min(3, len(ls)-1)}
	for _, l := range ls {
		res, err := c.queue.Redrive(r.Context(), l, ops.Options{Mode: m, DryRun: true})
		if err != nil {
			return nil, err
		}
		v.IDs = append(v.IDs, l.ID)
		v.add(res)
	}
	return v, nil
}

// run is a redrive under way, or one that has ended.
type run struct {
	tally

	ID     string    `json:"id"`
	Mode   string    `json:"mode"`
	Reason string    `json:"reason"`
	Began  time.Time `json:"began"`
	Total  int       `json:"total"`
	Canary int       `json:"canary"`
	Done   int       `json:"done"`
	Ended  time.Time `json:"ended,omitzero"`
	// Stopped says why it ended before its end.
	Stopped string `json:"stopped,omitempty"`

	stop context.CancelFunc
}

// runs are the redrives that this console has started, the latest last.
type runs struct {
	mu   sync.Mutex
	list []*run
	wait sync.WaitGroup
}

const keptRuns = 50

// view is a copy of a run.
func (s *runs) view(id string) (run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.list {
		if r.ID == id {
			v := *r
			v.Examples = slices.Clone(r.Examples)
			return v, nil
		}
	}
	return run{}, refusal(http.StatusNotFound, "this console has started no redrive %q", id)
}

// start adds a run. Only one is under way at a time.
func (s *runs) start(r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.list {
		if other.Ended.IsZero() {
			return refusal(http.StatusConflict, "redrive %s is under way: wait for its end, or stop it", other.ID)
		}
	}
	s.list = append(s.list, r)
	if len(s.list) > keptRuns {
		s.list = s.list[1:]
	}
	s.wait.Add(1)
	return nil
}

func (s *runs) add(r *run, res ops.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Done++
	r.tally.add(res)
}

func (s *runs) end(r *run, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wait.Done()
	r.Ended = time.Now().UTC()
	switch {
	case errors.Is(err, context.Canceled):
		r.Stopped = "it was stopped"
	case err != nil:
		r.Stopped = err.Error()
	}
}

// canaryTimeout is how long the keys of a canary may take.
const canaryTimeout = 2 * time.Minute

// startRedrive starts the redrive of a plan in the background.
func (c *Console) startRedrive(r *http.Request) (view, error) {
	ls, m, err := c.chosenWithMode(r)
	if err != nil {
		return nil, err
	}
	o, err := c.options(r, driver.Released)
	if err != nil {
		return nil, err
	}
	o.Mode = m
	rate, err := strconv.ParseFloat(cmp.Or(r.PostForm.Get("rate"), "20"), 64)
	if err != nil || !(rate >= 0 && rate <= 1e6) {
		return nil, refusal(http.StatusBadRequest, "rate is %q: it is a number of dead letters a second", r.PostForm.Get("rate"))
	}
	canary, err := strconv.Atoi(cmp.Or(r.PostForm.Get("canary"), "0"))
	if err != nil || canary < 0 {
		return nil, refusal(http.StatusBadRequest, "canary is %q: it is a number of dead letters", r.PostForm.Get("canary"))
	}
	ctx, stop := context.WithCancel(c.ctx)
	one := &run{
		ID: strings.ToLower(rand.Text()[:8]), Mode: string(m), Reason: o.Reason, Began: time.Now().UTC(), Total: len(ls), Canary: canary, stop: stop,
	}
	if err := c.runs.start(one); err != nil {
		stop()
		return nil, err
	}
	go func() {
		defer stop()
		err := c.queue.Each(ctx, ls, ops.Batch{Rate: rate, Canary: canary, CanaryTimeout: canaryTimeout},
			func(ctx context.Context, l driver.DeadLetter) (ops.Result, error) {
				return c.queue.Redrive(ctx, l, o)
			},
			func(res ops.Result) { c.runs.add(one, res) })
		c.runs.end(one, err)
		c.cfg.Log.Info("redrive ended", "audit", true, "by", o.By, "redrive", one.ID, "redriven", one.Redriven, "refused", one.Refused, "stopped", one.Stopped)
	}()
	return c.runs.view(one.ID)
}

func (c *Console) redrive(r *http.Request) (view, error) { return c.runs.view(r.PathValue("run")) }

func (c *Console) stopRedrive(r *http.Request) (view, error) {
	v, err := c.runs.view(r.PathValue("run"))
	if err == nil {
		v.stop()
	}
	return v, err
}

// discardedView says what became of dead letters that were to be discarded.
type discardedView struct{ tally }

func (c *Console) discard(r *http.Request) (view, error) {
	ls, err := c.chosen(r)
	if err != nil {
		return nil, err
	}
	o, err := c.options(r, driver.FailedState)
	if err != nil {
		return nil, err
	}
	var v discardedView
	for _, l := range ls {
		res, err := c.queue.Discard(r.Context(), l, o)
		if err != nil {
			return nil, err
		}
		v.add(res)
	}
	return v, nil
}

// changeKey decides, reopens or releases a key. Token and generation are those that the page showed: if they have changed,
// nothing happens.
func (c *Console) changeKey(r *http.Request) (view, error) {
	form := r.PostForm
	rec, err := c.find(r.Context(), form.Get("k"), form.Get("tenant"))
	if err != nil {
		return nil, err
	}
	if form.Get("token") != strconv.FormatUint(rec.Token, 10) || form.Get("generation") != strconv.FormatUint(uint64(rec.Generation), 10) {
		return nil, refusal(http.StatusConflict, "the key has changed since the page was made: it is %s now; look again", rec.State)
	}
	done, err := c.apply(r, rec, form.Get("as"))
	if err != nil {
		return nil, err
	}
	v, err := c.look(r.Context(), rec.Key.Raw, rec.Key.Tenant)
	v.Done = done
	return v, err
}

// changes are the operations on keys beside the resolutions, by the name that the form sends.
var changes = map[string]struct {
	kind driver.OperationKind
	done string
}{
	"reopen":  {driver.Reopen, "The key runs again at its next delivery."},
	"release": {driver.ForceRelease, "The claim was ended: the next delivery runs."},
}

func (c *Console) apply(r *http.Request, rec driver.Record, as string) (done string, err error) {
	if state, ok := ops.Resolutions[as]; ok {
		o, err := c.options(r, state)
		if err != nil {
			return "", err
		}
		sent, err := c.queue.Resolve(r.Context(), rec, state, []byte(r.PostForm.Get("result")), o)
		if changed := (*ops.NotUncertainError)(nil); errors.As(err, &changed) {
			err = refusal(http.StatusConflict, "%w", err)
		}
		if done = "The key was resolved as " + as + "."; sent != "" {
			done += " Its message was sent again as " + sent + "."
		}
		return done, err
	}
	change, ok := changes[as]
	if !ok {
		return "", refusal(http.StatusBadRequest, "as is %q: it is completed, retry, failed, reopen or release", as)
	}
	o, err := c.options(r, driver.Released)
	if err != nil {
		return "", err
	}
	_, err = ops.Change(r.Context(), c.cfg.Store, rec, change.kind, o)
	if e := (*ops.ChangedError)(nil); errors.As(err, &e) {
		err = refusal(http.StatusConflict, "%w", err)
	}
	return change.done, err
}
