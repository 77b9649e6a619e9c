package simulate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/internal/wait"
)

// Worker is the simulated handler of one process.
type Worker struct {
	k     Knobs
	log   *slog.Logger
	plain ledger
	// runs counts the runs of this process, for every LongEvery-th.
	runs atomic.Int64
	turn turn
	ran  sync.Map // see mortalQueue
	// die ends the process; tests watch it.
	die func()
}

// New makes the handler of knobs that were checked. Close it.
func New(k Knobs, log *slog.Logger) (*Worker, error) {
	w := &Worker{k: k, log: log, die: process.KillSelf}
	if w.k.Seed == 0 && k.CrashRate > 0 {
		w.k.Seed = rand.Uint64() | 1
		log.Info("simulation", "seed", w.k.Seed)
	}
	if !k.Transactional && k.Ledger != "" {
		file, err := openFile(k.Ledger)
		if err != nil {
			return nil, err
		}
		w.plain = file
	}
	return w, nil
}

// Close closes the ledger.
func (w *Worker) Close() error {
	if w.plain == nil {
		return nil
	}
	return w.plain.close()
}

// Attach makes cfg consume with this handler: it sets the handler, wraps the queue where the process is to die before a
// delete, and observes. Effects say how a transactional effect is queued; nil for plain ones.
func (w *Worker) Attach(cfg *semel.Config, effects semel.Handler) {
	cfg.Handler = effects
	if effects == nil {
		cfg.Handler = semel.HandlerFunc(w.Handle)
	}
	if w.k.CrashAfterReceive || w.k.CrashAfterSideEffect && w.k.Transactional {
		cfg.Queue = &mortalQueue{Queue: cfg.Queue, ran: &w.ran, die: w.dieAt}
	}
	if w.k.OneByOne() {
		cfg.Concurrency = 1
	}
	cfg.Events = semel.Tee(cfg.Events, semel.Events{Delivery: w.observe})
}

// Handle is one run with a plain effect.
func (w *Worker) Handle(ctx context.Context, a *semel.Attempt) error {
	if w.k.OneByOne() {
		if err := w.turn.take(ctx, a.ID); err != nil {
			return err
		}
	}
	if err := w.Work(ctx, a); err != nil {
		return err
	}
	if w.plain != nil {
		if err := w.plain.add(w.Effect(a)); err != nil {
			return err
		}
	}
	if w.k.CrashAfterSideEffect && a.Number == 1 {
		w.dieAt("after the effect, before its record", a.Key.Raw)
	}
	w.ran.Store(a.ID, true)
	return nil
}

// Queued is one run whose effect add queues, to be committed with the record.
func (w *Worker) Queued(ctx context.Context, a *semel.Attempt, add func(Effect)) error {
	if err := w.Work(ctx, a); err != nil {
		return err
	}
	add(w.Effect(a))
	w.ran.Store(a.ID, true)
	return nil
}

// Statements is the transactional handler of stores that speak SQL.
func (w *Worker) Statements() semel.Handler {
	return semel.InTx(func(ctx context.Context, tx *semel.Statements, a *semel.Attempt) error {
		return w.Queued(ctx, a, func(e Effect) {
			// Literals, because SQLite and PostgreSQL do not share a way to write parameters.
			tx.ExecRows(1, fmt.Sprintf("INSERT INTO %s (effect_key, message_key, message_id, attempt, token, pid, at) VALUES (%s, %s, %s, %d, %d, %d, %s)",
				w.k.Ledger, quote(e.EffectKey), quote(e.Key), quote(e.MessageID), e.Attempt, e.Token, e.PID, quote(e.At.Format(time.RFC3339Nano))))
		})
	})
}

func quote(s string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(s, "\x00", ""), "'", "''") + "'"
}

// Work is the part of a run before its effect.
func (w *Worker) Work(ctx context.Context, a *semel.Attempt) error {
	length := w.length(a)
	w.log.Info("start", "id", a.Key.Raw, "sleep", length.Seconds(), "attempt", a.Number)
	if w.k.Reject != "" && strings.Contains(string(a.Body), w.k.Reject) {
		err := fmt.Errorf("rejected: the payload has %q", w.k.Reject)
		if w.k.RetryRejected {
			return semel.NotApplied(err)
		}
		return semel.Permanent(err)
	}
	if crash, at := w.fate(a); crash {
		if err := pause(ctx, time.Duration(at*float64(length))); err != nil {
			return err
		}
		w.dieAt("in the work, before the effect", a.Key.Raw)
	}
	return pause(ctx, length)
}

// length is how long a message works.
func (w *Worker) length(a *semel.Attempt) time.Duration {
	n := w.runs.Add(1)
	var body struct {
		Sleep *float64 `json:"sleep"`
	}
	if json.Unmarshal(a.Body, &body) == nil && body.Sleep != nil && *body.Sleep >= 0 && *body.Sleep < 1e9 {
		return time.Duration(*body.Sleep * float64(time.Second))
	}
	if w.k.LongEvery > 0 && n%int64(w.k.LongEvery) == 0 {
		return w.k.LongSleep
	}
	return w.k.SleepMin + time.Duration(rand.Float64()*float64(w.k.SleepMax-w.k.SleepMin))
}

// fate tells whether the process dies in this run, and at which share of the work. It follows from the seed and the key,
// so that the same messages meet the same crashes whatever process gets them, and however often.
func (w *Worker) fate(a *semel.Attempt) (crash bool, at float64) {
	if w.k.CrashRate == 0 || a.Number != 1 {
		return false, 0
	}
	b := binary.BigEndian.AppendUint64(nil, w.k.Seed)
	sum := sha256.Sum256(append(b, a.Key.Raw...))
	share := func(b []byte) float64 { return float64(binary.BigEndian.Uint64(b)>>11) / (1 << 53) }
	return share(sum[:8]) < w.k.CrashRate, share(sum[8:16])
}

func pause(ctx context.Context, d time.Duration) error {
	if err := wait.Until(ctx, time.Now().Add(d)); err != nil {
		return semel.NotApplied(context.Cause(ctx)) // nothing happened yet
	}
	return nil
}

// observe logs decisions in the words of the experiments.
func (w *Worker) observe(e semel.Event) {
	if e.Kind != semel.EventDecided {
		return
	}
	switch e.Decision {
	case semel.Executed:
		w.log.Info("completed", "id", e.Key.Raw)
	case semel.Replayed, semel.ReplayedOtherPayload:
		w.log.Info("duplicate_skipped", "id", e.Key.Raw, "cause", string(e.Cause), "status", "success", "skipped", true)
	case semel.Fenced:
		w.log.Info("conditional_write_failed", "id", e.Key.Raw, "reason", "race_condition_prevented")
	case semel.BusyDeferred:
		w.log.Info("duplicate_deferred", "id", e.Key.Raw, "status", "processing", "reason", "already_processing", "action", "requeued")
	}
	w.turn.pass(e.MessageID)
	w.ran.Delete(e.MessageID)
}

// dieAt ends the process as a crash does: nothing is flushed, nothing returned.
func (w *Worker) dieAt(where, key string) {
	w.log.Warn("crash", "where", where, "id", key, "pid", os.Getpid())
	w.die()
}

// Effect is what a run leaves behind. Nothing makes it unique: a second run shows as a second one.
type Effect struct {
	// EffectKey is the same for every run of a message's key.
	EffectKey string    `json:"effect_key"`
	Key       string    `json:"key"`
	MessageID string    `json:"message_id"`
	Attempt   int       `json:"attempt"`
	Token     uint64    `json:"token"`
	PID       int       `json:"pid"`
	At        time.Time `json:"at"`
}

// Effect is the effect of a run.
func (w *Worker) Effect(a *semel.Attempt) Effect {
	return Effect{
		EffectKey: a.EffectKey(""), Key: a.Key.Raw, MessageID: a.ID, Attempt: a.Number, Token: a.Token, PID: os.Getpid(), At: time.Now().UTC(),
	}
}

// ledger takes effects that do not commit with the record.
type ledger interface {
	add(e Effect) error
	close() error
}

// file appends a line an effect: one write, so that lines of several processes do not mix.
type file struct{ f *os.File }

func openFile(path string) (file, error) {
	f, err := output.AppendFile(path)
	if err != nil {
		return file{}, fmt.Errorf("open the ledger: %w", err)
	}
	return file{f}, nil
}

func (l file) add(e Effect) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := l.f.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write the effect: %w", err)
	}
	return nil
}

func (l file) close() error { return l.f.Close() }
