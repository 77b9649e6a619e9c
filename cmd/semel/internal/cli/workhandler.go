package cli

import (
	"errors"
	"io"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/worker"
)

// processes are what the handlers of a worker run in; they are to be closed.
type processes struct {
	pipe  *worker.Pipe
	guard *worker.Guard
}

// Close ends the handler processes, then their guard.
func (p *processes) Close() error {
	var err error
	if p.pipe != nil {
		err = p.pipe.Close()
	}
	return errors.Join(err, p.guard.Close())
}

// handler makes the handler that the settings describe, and starts its processes.
func (s *shift) handler(cfg *semel.Config) (io.Closer, error) {
	running := &processes{}
	if s.w.Simulate.On {
		return running, nil
	}
	keep := int(s.w.ResultMax)
	if s.w.HTTP == "" || s.w.Probe != "" {
		argv, err := worker.GuardArgv()
		if err != nil {
			return nil, err
		}
		if running.guard, err = worker.StartGuard(argv...); err != nil {
			return nil, err
		}
	}
	name := s.queue.Features().Name
	switch {
	case s.w.Probe != "":
		cfg.Probe = s.program(worker.Shell(s.w.Probe), keep, running.guard).Ask
	case s.w.ProbeHTTP != "":
		cfg.Probe = worker.NewHTTPProbe(worker.HTTPProbe{URL: s.w.ProbeHTTP, Queue: name, Keep: keep, Log: s.log}, s.w.Concurrency).Ask
	}
	if s.w.Pipe != "" {
		running.pipe = s.pipe(cfg, running.guard)
		running.pipe.Start()
		return running, nil
	}
	if s.w.HTTPBatch > 0 {
		return running, s.httpBatch(cfg)
	}
	r, err := s.runner(running.guard)
	switch {
	case err != nil:
		return nil, errors.Join(err, running.Close())
	case s.w.Effects == "sql":
		cfg.Handler = worker.Statements(r)
	default:
		cfg.Handler = worker.Plain(r, s.log)
	}
	return running, nil
}

// runner is a handler that is called for each message: an endpoint or a program.
func (s *shift) runner(guard *worker.Guard) (worker.Runner, error) {
	keep := int(s.w.ResultMax)
	if s.w.Effects == "sql" {
		keep = worker.EffectsKeep
	}
	if s.w.HTTP == "" {
		argv := s.w.Command
		if s.w.Exec != "" {
			argv = worker.Shell(s.w.Exec)
		}
		return s.program(argv, keep, guard), nil
	}
	return s.endpoint(keep)
}

// endpoint is a handler that messages are posted to.
func (s *shift) endpoint(keep int) (*worker.HTTP, error) {
	h := worker.HTTP{URL: s.w.HTTP, Queue: s.queue.Features().Name, Keep: keep, Sqsd: s.w.Compat == "sqsd", Log: s.log,
		Retry: worker.Named(s.w.Retry)}
	if s.w.WebhookSecretFile != "" {
		secret, err := worker.ReadSecret(s.w.WebhookSecretFile)
		if err != nil {
			return nil, output.Usage("--webhook-secret-file: %w", err)
		}
		h.Secret = secret
	}
	return worker.NewHTTP(h, s.w.Concurrency), nil
}

// httpBatch makes the handler of an endpoint that takes arrays.
func (s *shift) httpBatch(cfg *semel.Config) error {
	h, err := s.endpoint(int(s.w.ResultMax))
	if err != nil {
		return err
	}
	b := &worker.HTTPBatch{HTTP: h, Batch: s.w.HTTPBatch, Requests: s.w.Concurrency}
	if cfg.Handler = b.Handler(); s.w.Effects == "sql" {
		cfg.Handler, cfg.Batch = b.BatchStatements(), s.w.HTTPBatch
	}
	return nil
}

// program is a handler that starts a process for each message.
func (s *shift) program(argv []string, keep int, guard *worker.Guard) *worker.Exec {
	return &worker.Exec{
		Argv: argv, Queue: s.queue.Features().Name, Keep: keep, KillGrace: s.w.KillGraceOr(), Log: s.log, Broken: s.stop, Guard: guard,
		Retry: worker.Named(s.w.Retry),
	}
}

// pipe is a handler of processes that keep running.
func (s *shift) pipe(cfg *semel.Config, guard *worker.Guard) *worker.Pipe {
	p := &worker.Pipe{
		Argv: worker.Shell(s.w.Pipe), Queue: s.queue.Features().Name, Processes: s.w.Processes, InFlight: s.w.InFlight,
		Batch: s.w.PipeBatch, Keep: int(s.w.ResultMax), KillGrace: s.w.KillGraceOr(), Look: s.w.Lease() / 6, Log: s.log,
		Broken: s.stop, Guard: guard,
	}
	switch {
	case s.w.Effects == "":
		cfg.Handler = p.Handler()
	case s.w.PipeBatch > 0:
		cfg.Handler, cfg.Batch = p.BatchStatements(), s.w.PipeBatch
	default:
		cfg.Handler = p.Statements()
	}
	return p
}
