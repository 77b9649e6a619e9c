package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/ops"
)

// tally is what the events of all workers say.
type tally struct {
	// ends is how each message ended, by the first end that stays one; deliveries counts how often it came.
	ends       map[string]semel.Decision
	done       map[string]time.Time
	deliveries int
	handler    []float64 // milliseconds
	causes     map[string]int
	decisions  map[semel.Decision]int
	trouble    int
	workers    []Worker
	last       time.Time
}

// final tells a decision after which a message does not come again.
func final(d semel.Decision) bool {
	switch d {
	case semel.Executed, semel.Replayed, semel.ReplayedOtherPayload, semel.Stale, semel.Mismatched, semel.DeadLettered, semel.ParkedUncertain, semel.Dropped,
		semel.Unprotected:
		return true
	default:
		return false
	}
}

// take reads the events of one worker.
func (t *tally) take(n, pid int, path string) error {
	w := Worker{ID: n, PID: pid}
	err := ops.ReadEvents(path, func(l ops.EventLine) {
		switch semel.EventKind(l.Kind) {
		case semel.EventReceived:
			t.deliveries++
			w.Deliveries++
		case semel.EventEnded:
			t.handler = append(t.handler, l.ElapsedMS)
			w.Handled++
		case semel.EventTrouble:
			t.trouble++
		case semel.EventDecided:
			t.decide(l)
		default:
		}
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("count what worker %d did: %w", n, err)
	}
	t.workers = append(t.workers, w)
	return nil
}

func (t *tally) decide(l ops.EventLine) {
	d := semel.Decision(l.Decision)
	t.decisions[d]++
	if l.Cause != "" {
		t.causes[l.Cause]++
	}
	if !final(d) {
		return
	}
	if at, ok := t.done[l.MessageID]; !ok || l.At.Before(at) {
		t.done[l.MessageID], t.ends[l.MessageID] = l.At, d
	}
	if l.At.After(t.last) {
		t.last = l.At
	}
}

// effects counts the lines of the ledger, by key.
func effects(path string) (map[string]int, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("count the effects: %w", err)
	}
	defer func() { _ = f.Close() }()
	out := map[string]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e struct{ Key string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("count the effects: %w", err)
		}
		out[e.Key]++
	}
	return out, lines.Err()
}

// count makes the result.
func (b *bench) count(ctx context.Context) (Result, error) {
	t := &tally{
		ends: map[string]semel.Decision{}, done: map[string]time.Time{}, causes: map[string]int{}, decisions: map[semel.Decision]int{},
	}
	res := Result{
		N: b.N, SameKey: b.SameKey, Concurrency: b.Concurrency, HandlerTime: b.HandlerTime.String(), Visibility: b.Visibility.String(),
		Rate:      b.Rate,
		SendingMS: ms(b.sending), Machine: machine(),
	}
	for _, m := range b.crew.all {
		if err := t.take(m.n, m.Pid(), b.crew.file("events", m.n)); err != nil {
			return res, err
		}
		lines := m.errors()
		res.Errors.LogLines += len(lines)
		res.Errors.Lines = append(res.Errors.Lines, lines[:min(3, len(lines))]...)
	}
	made, err := effects(b.crew.ledger())
	if err != nil {
		return res, err
	}
	st, err := b.place.Queue.Stats(ctx)
	if err != nil {
		return res, fmt.Errorf("look at the queue: %w", err)
	}
	deadLetters, err := b.place.Queue.DeadLetters(ctx, 0)
	if err != nil {
		return res, fmt.Errorf("look at the dead letters: %w", err)
	}
	res.fill(b, t)
	res.check(b, t, made, st.Visible+st.InFlight+st.Delayed, len(deadLetters))
	return res, nil
}

// fill writes the figures down.
func (r *Result) fill(b *bench, t *tally) {
	r.Workers = t.workers
	r.Deliveries = t.deliveries
	r.Suppressed = t.decisions[semel.Replayed] + t.decisions[semel.ReplayedOtherPayload]
	r.Deferred, r.Causes = t.decisions[semel.BusyDeferred], t.causes
	r.Errors.Retried, r.Errors.Dead = t.decisions[semel.Retried], t.decisions[semel.DeadLettered]
	r.Errors.Uncertain, r.Errors.Fenced = t.decisions[semel.ParkedUncertain], t.decisions[semel.Fenced]
	r.Errors.Trouble = t.trouble
	r.Handler = percentiles(t.handler)
	var ends []float64
	for id, at := range t.done {
		if sent, ok := b.sent[id]; ok {
			ends = append(ends, ms(at.Sub(sent)))
			r.Done++
		}
	}
	r.EndToEnd = percentiles(ends)
	if took := t.last.Sub(b.began); took > 0 {
		r.ElapsedMS = ms(took)
		r.Throughput = math.Round(float64(r.Done)/took.Seconds()*10) / 10
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// percentiles are by the nearest rank.
func percentiles(all []float64) Percentiles {
	if len(all) == 0 {
		return Percentiles{}
	}
	slices.Sort(all)
	rank := func(p float64) float64 { return all[max(0, int(math.Ceil(p*float64(len(all))))-1)] }
	return Percentiles{P50: rank(0.5), P95: rank(0.95), P99: rank(0.99), Max: all[len(all)-1]}
}
