package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/worker"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/ops"
)

func (a *app) workCommand() *cobra.Command {
	w := config.Default()
	c := &cobra.Command{
		Use:   "work --queue URL (--exec CMD | --pipe CMD | --http URL | --simulate | -- PROG ARG…)",
		Short: "Consume a queue, each message's effect exactly once",
		Long: `work receives messages and calls the handler: once per key, however often a message is delivered.
The first SIGINT or SIGTERM drains (running handlers may finish within --grace) and exits 0; the
second exits 130.

A handler process gets the body on stdin and SEMEL_KEY, SEMEL_EFFECT_KEY and so on in its
environment. SEMEL_EFFECT_KEY is the idempotency key of its effect (with --http: the header
Idempotency-Key). A handler with several effects makes one key for each, with a name:
  $(printf %s "$SEMEL_EFFECT_KEY/mails" | sha256sum | cut -c1-64)

Exit status of the handler: 0 done (stdout is the result), 75 retry, 64/65 dead letter, 69
downstream unavailable, 99 drop, anything else retry.

With --pipe the handler keeps running: it writes {"ready":1}, reads a line of JSON for each message,
and writes a line for each result, like {"id":1,"outcome":"done"} (docs/pipe.md).`,
		Example: `  semel work --queue 'sqlite:shop.db?queue=orders' --exec 'python3 charge.py'
  semel work --queue 'postgres://shop@db.example.org/shop?queue=orders' --exec 'python3 charge.py'
  semel work --queue 'sqlite:shop.db?queue=orders' --pipe 'python3 lines.py' --in-flight 8
  semel work --queue 'sqlite:shop.db?queue=orders' --key json:/order_id --http http://localhost:9000
  semel work --queue 'sqlite:shop.db?queue=orders' --effects sql --until-empty -- python3 effects.py`,
		Annotations: map[string]string{"settings": "worker"},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return output.Usage("work takes no argument %q", args[0]).WithHint("put the handler after --: semel work … -- %s", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			w.Command = a.argv(args, &w)
			return a.work(cmd.Context(), w)
		},
	}
	config.Bind(c.Flags(), &w)
	return c
}

// argv is the program to run: that of the command line; that of the file where no flag asks for another handler.
func (a *app) argv(args []string, w *config.Work) []string {
	if len(args) > 0 {
		return args
	}
	if w.Exec != "" || w.Pipe != "" || w.HTTP != "" || w.Simulate.On {
		return nil
	}
	return a.applied.Command
}

func (a *app) work(ctx context.Context, w config.Work) (err error) {
	if err := w.Check(); err != nil {
		return err
	}
	set := open.New(open.Options{Visibility: time.Duration(w.Visibility), Committers: w.Committers, QueueMustExist: true})
	defer closing(&err, set)
	queue, store, err := set.Pair(ctx, w.Queue, w.StoreURL())
	if err != nil {
		return err
	}
	a.warnOfNewQueue(ctx, set, w.Queue, queue.Features().Name)
	// Copies that producers send again have ids of their own; the messages that dlq redrive sends are known by theirs.
	cached := cache.New(store, cache.Options{Size: w.CacheSize, MaxAge: time.Duration(w.CacheMaxAge), Strangers: true})
	if w.UntilEmpty {
		if _, ok := driver.As[driver.QueueInspector](queue); !ok {
			return output.Usage("--until-empty: queue %s cannot count its messages", queue.Features().Name).WithHint("--idle-timeout 10s")
		}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s := &shift{app: a, w: w, queue: queue, store: cached, records: store, stop: stop, began: time.Now()}
	return s.run(ctx)
}

// shift is one run of the worker.
type shift struct {
	*app
	w     config.Work
	queue driver.Queue
	store driver.Store
	// records is the store without its cache.
	records driver.Store
	stop    context.CancelCauseFunc
	began   time.Time
	idle    idleWatch
	lent    lentKeys
}

// Reasons for a worker to stop by itself, beside the handler's being broken.
var (
	errIdle  = errors.New("idle")
	errEmpty = errors.New("the queue is empty")
)

func (s *shift) run(ctx context.Context) (err error) {
	cfg, err := semelConfig(s.w, s.queue, s.store)
	if err != nil {
		return err
	}
	cfg.Key = s.lent.watch(s.w, cfg.Key, s.log)
	journal, err := s.observe(&cfg)
	if err != nil {
		return err
	}
	if journal != nil {
		defer closing(&err, journal)
	}
	shown, err := s.openWindow(ctx, &cfg)
	if err != nil {
		return err
	}
	defer closing(&err, shown)
	guard, err := s.handler(&cfg)
	if err != nil {
		return err
	}
	defer closing(&err, guard)
	sim, err := s.simulate(&cfg)
	if err != nil {
		return err
	}
	if sim != nil {
		defer closing(&err, sim)
	}
	traces, err := s.trace(ctx, &cfg)
	if err != nil {
		return err
	}
	defer closing(&err, traces)
	c, err := semel.New(cfg)
	if err != nil {
		return config.Explain(err)
	}
	s.p.Notef("guarantee: %s", s.guarantee(c.Guarantee()))
	checks := s.checks()
	s.warnOf(checks)
	endConsole, err := s.console(ctx, checks)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endConsole()) }()
	background, endBackground := context.WithCancel(context.WithoutCancel(ctx))
	ended := s.background(background, c, journal, shown)
	quiet := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
			s.log.Info("draining: running handlers may finish; a second signal stops them at once", "grace", s.w.Grace.String())
		}
	})
	runErr := c.Run(ctx)
	quiet()
	endBackground()
	ended()
	if err := s.report(c.Summary()); err != nil {
		return err
	}
	return s.verdict(ctx, runErr)
}

// semelConfig is the consumer that the settings describe, but for its handler and observers.
func semelConfig(w config.Work, q driver.Queue, st driver.Store) (semel.Config, error) {
	key, err := key.Parse(w.Key)
	if err != nil {
		return semel.Config{}, config.Explain(err)
	}
	fp, err := w.FingerprintFunc()
	if err != nil {
		return semel.Config{}, config.Explain(err)
	}
	versions, err := w.Versions()
	if err != nil {
		return semel.Config{}, config.Explain(err)
	}
	previous, err := w.Previous(q.Features().Name)
	if err != nil {
		return semel.Config{}, err
	}
	cfg := semel.Config{
		Queue: q, Store: st, Consumer: w.Consumer, Key: key, PreviousKey: previous, Fingerprint: fp, Versions: versions,
		Settings:     map[string]string{"key": w.Key, "strategy": w.Strategy, "fingerprint": w.Fingerprint},
		AllowUnkeyed: w.OnMissingKey == "unprotected", Takeover: w.TakeoverPolicy(), ClaimAtCommit: w.Claim == "at-commit", Busy: w.BusyPolicy(),
		Concurrency: w.Slots(), Batch: w.Batch, Committers: w.Committers,
		Visibility: time.Duration(w.Visibility), Timeout: time.Duration(w.Timeout), MaxRuntime: time.Duration(w.MaxRuntime),
		Grace: time.Duration(w.Grace), MaxAttempts: w.MaxAttempts,
		Backoff:         semel.Backoff{Min: time.Duration(w.Backoff.Min), Max: time.Duration(w.Backoff.Max)},
		ProducerRetries: time.Duration(w.Producers), ResultMax: int(w.ResultMax), Limit: w.Limit,
		MaxAge: time.Duration(w.MaxAge), LongTerm: time.Duration(w.LongTerm),
	}
	w.Retention.Apply(&cfg)
	return cfg, config.Explain(w.Limits(&cfg))
}

// observe wires the journal, the idle watch and the log.
func (s *shift) observe(cfg *semel.Config) (*ops.EventLog, error) {
	var all []semel.Events
	var journal *ops.EventLog
	if s.w.Events != "" {
		f, err := output.AppendFile(s.w.Events)
		if err != nil {
			return nil, output.Usage("--events: %w", err)
		}
		journal = ops.NewEventLog(struct {
			io.Writer
			io.Closer
		}{output.NewSafe(f), f})
		all = append(all, semel.Observe(journal.Add))
	}
	if s.w.IdleTimeout > 0 {
		all = append(all, s.idle.events())
	}
	all = append(all, s.warnOfRoutes())
	cfg.Events = semel.Tee(all...)
	cfg.Logger = s.log
	return journal, nil
}

// warnOfRoutes warns of source events that arrive as two messages, once for each pair of routes.
func (s *shift) warnOfRoutes() semel.Events {
	warned := map[[2]string]bool{}
	return semel.DetectDuplicateRoutes(func(k semel.Key, first, second semel.DuplicateRoute) {
		pair := [2]string{min(first.Route, second.Route), max(first.Route, second.Route)}
		if warned[pair] {
			return
		}
		warned[pair] = true
		s.log.Warn("one source event came by two routes: look for rules, subscriptions or notifications that overlap", "key", k.Raw,
			"message_id", first.MessageID, "route", first.Route, "other_message_id", second.MessageID, "other_route", second.Route)
	})
}

// background starts what goes on beside consuming; the function it returns waits for its end.
func (s *shift) background(ctx context.Context, c *semel.Consumer, journal *ops.EventLog, shown *window) (wait func()) {
	var running []chan struct{}
	start := func(f func(context.Context)) {
		done := make(chan struct{})
		running = append(running, done)
		go func() {
			defer close(done)
			f(ctx)
		}()
	}
	if s.w.IdleTimeout > 0 {
		start(s.watchIdle)
	}
	if journal != nil {
		start(func(ctx context.Context) { watchLoad(ctx, c, journal) })
	}
	if shown.on() {
		start(func(ctx context.Context) { shown.watch(ctx, c) })
	}
	if s.w.UntilEmpty {
		q, _ := driver.As[driver.QueueInspector](s.queue)
		start(func(ctx context.Context) { watchEmpty(ctx, q, s.log, s.stop) })
	}
	return func() {
		for _, done := range running {
			<-done
		}
	}
}

// watchLoad writes down how busy the worker is: soon after the start, then every ten seconds.
func watchLoad(ctx context.Context, c *semel.Consumer, journal *ops.EventLog) {
	for pause := time.Second; ; pause = 10 * time.Second {
		select {
		case <-ctx.Done():
			return
		case now := <-time.After(pause):
			journal.AddLoad(now, c.Load())
		}
	}
}

// verdict is the worker's exit: a drain is a success, whoever asked for it.
func (s *shift) verdict(ctx context.Context, runErr error) error {
	if cause := context.Cause(ctx); errors.Is(cause, worker.ErrHandlerBroken) {
		return output.Usage("%w", cause).WithHint("check the command, its path and its permissions; the messages are still in the queue")
	}
	if cause := context.Cause(ctx); errors.Is(cause, worker.ErrNeverReady) {
		return output.Failed("%w", cause).WithHint("run the command of --pipe by hand: its first line must be {\"ready\":1} (docs/pipe.md); the messages are still in the queue")
	}
	if runErr == nil || errors.Is(runErr, context.Canceled) {
		return nil
	}
	if stuck := (*semel.HandlerStuckError)(nil); errors.As(runErr, &stuck) {
		return output.Failed("%w", runErr).WithHint("their claims last until their leases end; then others take over")
	}
	return fmt.Errorf("work: %w", runErr)
}

// lentKeys counts the messages without a key of their own that --on-missing-key id gives one, and warns of the first.
type lentKeys struct {
	n    atomic.Int64
	warn sync.Once
}

// watch is the key function of a worker: own, and where that has no key and --on-missing-key says id, that of --key id.
func (l *lentKeys) watch(w config.Work, own key.Func, log *slog.Logger) key.Func {
	if w.OnMissingKey != "id" {
		return own
	}
	return func(m *semel.Message) (string, error) {
		raw, err := own(m)
		if !errors.Is(err, key.ErrMissing) {
			return raw, err
		}
		missing := err
		first := func(*semel.Message) (string, error) { return "", missing }
		if raw, err = key.First(first, key.ByID)(m); err != nil {
			return "", err
		}
		l.n.Add(1)
		l.warn.Do(func() {
			log.Warn("a message has no key, and is given one (--on-missing-key id); further ones are only counted", "key", raw, "why", missing,
				"hint", "a producer that sends twice makes two such keys: --key with what its messages have, or --on-missing-key fail")
		})
		return raw, nil
	}
}
