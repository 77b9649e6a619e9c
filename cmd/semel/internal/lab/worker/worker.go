package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/process"
)

// Spec is the configuration of a worker process: one JSON line on its standard input.
type Spec struct {
	Design plan.Design `json:"design"`
	// Place is where queue, records and ledger are, Dir the folder of the run: markers, events files.
	URLs   place.URLs `json:"urls"`
	Dir    string     `json:"dir"`
	Events string     `json:"events"`

	Seed    uint64       `json:"seed"`
	Worker  int          `json:"worker"`
	Life    int          `json:"life"`
	Workers plan.Workers `json:"workers"`
	// Live: a person may disturb the run (DropAckFile, DeafFile).
	Watched bool `json:"watched,omitempty"`
	// Versions: the messages of a key replace each other.
	Versions bool          `json:"versions"`
	Wire     plan.Wire     `json:"wire"`
	Strikes  []plan.Strike `json:"strikes"`
	Grace    time.Duration `json:"grace"`
}

// Main is a worker process: the hidden command that the runner starts. It reads its spec from standard input, works
// until standard input ends (the parent asks it to stop, or is dead), drains, and returns the exit code.
// Interrupts are the parent's business: a Ctrl-C that reaches the whole terminal must not make a worker drain while
// its parent thinks it at work.
func Main([]string) int {
	signal.Ignore(os.Interrupt)
	if err := run(os.Stdin); err != nil {
		fmt.Fprintln(output.NewSafe(os.Stderr), "lab worker:", err)
		return 1
	}
	return 0
}

func run(stdin io.Reader) error {
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the worker's spec from standard input: %w", err)
	}
	var spec Spec
	if err := json.Unmarshal(line, &spec); err != nil {
		return fmt.Errorf("decode the worker's spec: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
		// A parent that died does not wait for us: never outlive the grace by much.
		time.Sleep(spec.Grace + 5*time.Second)
		process.KillSelf()
	}()
	return work(ctx, spec)
}

func work(ctx context.Context, spec Spec) (err error) {
	log, err := eventlog.Open(spec.Events, spec.Worker, spec.Life)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	defer eventlog.MeasureDelay(log.Delay)()
	r, err := place.Open(ctx, spec.URLs, spec.Workers.Visibility)
	if err != nil && ctx.Err() != nil {
		return nil // stopped before it had begun
	}
	if err != nil {
		return err
	}
	defer func() {
		if cerr := r.Close(); err == nil {
			err = cerr
		}
	}()
	if err := os.WriteFile(ReadyFile(spec.Dir, spec.Worker), nil, 0o600); err != nil {
		return fmt.Errorf("report that it is ready: %w", err)
	}
	w := &worker{spec: spec, place: r, log: log, gate: newGate(spec.Strikes, spec.Worker, spec.Dir, log)}
	keys, faults := newKeyring(), newFaults(spec)
	w.faults = faults
	w.queue = &stepQueue{Queue: r.Queue, gate: w.gate, log: log, keys: keys, faults: faults, visible: spec.Workers.Visibility}
	committer, _ := driver.As[driver.Committer](r.Store)
	w.store = &stepStore{Store: r.Store, committer: committer, gate: w.gate, log: log, keys: keys, faults: faults}
	consume, ok := designs[spec.Design]
	if !ok {
		return fmt.Errorf("no design is called %q", spec.Design)
	}
	return consume(ctx, w)
}

// ReadyFile is the file in a run's folder that a worker makes when it begins to consume.
func ReadyFile(dir string, worker int) string {
	return filepath.Join(dir, fmt.Sprintf("ready-%d", worker))
}

// designs are the consumers.
var designs = map[plan.Design]func(context.Context, *worker) error{
	plan.Plain:          unguarded(plainOne),
	plan.CheckLast:      unguarded(checkLast{condition: true}.one),
	plan.CheckLastBlind: unguarded(checkLast{}.one),
	plan.SkipBusy:       unguarded(skipBusyOne),
	plan.MarkFirst:      unguarded(markFirstOne),
	plan.TTLLock:        unguarded(ttlLockOne),
	plan.MessageID:      guarded((*worker).inTx, messageKey),
	plan.FailFast:       unguarded(failFastOne),
	plan.LastWriter:     unguarded(plainOne),
	plan.SagaByHand:     unguarded(sagaByHandOne),
	plan.DualWrite:      unguarded(dualWriteOne),
	plan.Semel:          guarded((*worker).inTx, businessKey),
	plan.SemelKeyed:     guarded(keyed, businessKey),
	plan.SemelSteps:     guarded(itemized, businessKey),
	plan.SemelSaga:      guarded(saga, businessKey),
	plan.SemelOutbox:    guardedOutbox,
}

type worker struct {
	spec   Spec
	place  *place.Place
	queue  *stepQueue
	store  *stepStore
	gate   *gate
	log    *eventlog.Log
	faults *faults
}

func (w *worker) effect(key string, o order, message string, attempt int) place.Effect {
	return place.Effect{
		Key: key, Amount: o.Amount, Version: o.Version, Message: message, Attempt: attempt,
		Worker: w.spec.Worker, Life: w.spec.Life, PID: os.Getpid(), At: time.Now(),
	}
}
