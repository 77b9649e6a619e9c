package campaign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	"github.com/semel-dev/semel/adapters/aws/sqs"
	"github.com/semel-dev/semel/driver"
)

// process is one worker process with its clients, connections and clock. It shares only the services with others.
type process struct {
	w      *world
	name   string
	faults *awstest.Faults
	ahead  time.Duration // its clock
	cancel context.CancelFunc
	dead   atomic.Bool
}

// start starts a process, in a world with faults or without.
func (w *world) start(ctx context.Context, name string, faulty bool) *process {
	r := w.chance(name)
	p := &process{w: w, name: name}
	plan := awstest.Plan{Seed: r.Uint64(), DelayBy: w.delayBy, LateBy: w.lateBy}
	if faulty {
		plan.Rates, plan.Operations = w.rates, w.operations
	}
	p.faults = awstest.NewFaults(plan)
	p.ahead = time.Duration(r.Int64N(int64(w.apart)+1)) - w.apart/2
	w.mu.Lock()
	w.procs = append(w.procs, p)
	w.mu.Unlock()
	ctx, p.cancel = context.WithCancel(ctx)
	w.note("%s starts, its clock %v ahead", name, p.ahead.Round(time.Millisecond))
	w.gone.Go(func() {
		c, err := p.open(ctx, r.IntN(8)+1, r.IntN(2)+1)
		if err == nil {
			err = c.Run(ctx)
		}
		if stuck := (*semel.HandlerStuckError)(nil); err != nil && ctx.Err() == nil || err != nil && !p.dead.Load() && !errors.As(err, &stuck) &&
			!errors.Is(err, context.Canceled) {
			w.fail("%s ended: %v", name, err)
		}
		w.note("%s is gone (%v)", name, err)
	})
	return p
}

// kill ends a process at once: none of its later requests arrive.
func (p *process) kill() {
	p.w.note("%s is killed", p.name)
	p.dead.Store(true)
	p.faults.Outage(true)
	p.cancel()
}

// stop asks a process to drain.
func (p *process) stop() {
	p.w.note("%s is stopped", p.name)
	p.cancel()
}

// open opens queue and store, repeatedly until the faults allow it, and makes a consumer.
func (p *process) open(ctx context.Context, concurrency, committers int) (*semel.Consumer, error) {
	wrap := []func(http.RoundTripper) http.RoundTripper{p.faults.Wrap}
	if b := p.w.bug; b != nil && b.wire != nil {
		wrap = append([]func(http.RoundTripper) http.RoundTripper{func(next http.RoundTripper) http.RoundTripper {
			return b.wire(p.w, next)
		}}, wrap...)
	}
	sqsClient := awssqs.NewFromConfig(awstest.Config(p.w.sqs, wrap...))
	dynamoClient := awsdynamodb.NewFromConfig(awstest.Config(p.w.dynamo, wrap...))
	var queue *sqs.Queue
	var store *dynamodb.Store
	err := again(ctx, func(ctx context.Context) (err error) {
		queue, err = sqs.Open(ctx, sqsClient, p.w.queue, sqs.Options{})
		return err
	})
	if err != nil {
		return nil, err
	}
	err = again(ctx, func(ctx context.Context) (err error) {
		store, err = dynamodb.Open(ctx, dynamoClient, records, dynamodb.Options{
			MaxClockSkew: skew, Clock: func() time.Time { return time.Now().Add(p.ahead) },
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	cfg := semel.Config{
		Queue: queue, Store: &watched{Store: store, w: p.w, p: p}, Handler: p.handler(), Consumer: "campaign", Key: keyOf,
		Visibility: visibility, Grace: 5 * time.Second, MaxAttempts: 8, MaxRuntime: 4 * time.Minute, Concurrency: concurrency,
		Committers: committers, Batch: 10, Backoff: semel.Backoff{Min: time.Second, Max: 20 * time.Second},
		Events: semel.Observe(p.observe), Logger: slog.New(slog.DiscardHandler),
	}
	if b := p.w.bug; b != nil && b.config != nil {
		b.config(&cfg)
	}
	return semel.New(cfg)
}

// again repeats a call that fails because of faults.
func again(ctx context.Context, f func(ctx context.Context) error) error {
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

func (p *process) observe(e semel.Event) {
	switch e.Kind {
	case semel.EventReceived, semel.EventStarted, semel.EventEnded, semel.EventDecided, semel.EventSettled, semel.EventDoubt,
		semel.EventPaused, semel.EventTrouble:
		line := fmt.Sprintf("%s %s %s", p.name, e.Kind, e.Key.Raw)
		if e.MessageID != "" {
			line += fmt.Sprintf(" %.8s", e.MessageID)
		}
		if e.Token > 0 {
			line += fmt.Sprintf(" token %d", e.Token)
		}
		if e.Decision != "" {
			line += " " + string(e.Decision)
		}
		if e.Kind == semel.EventSettled {
			line += fmt.Sprintf(" %v %v after %v", e.Action, e.Outcome, e.After)
		}
		if e.Err != nil {
			line += fmt.Sprintf(" (%.100s)", e.Err)
		}
		p.w.note("%s", line)
	}
}

// watched observes what the store returns.
type watched struct {
	*dynamodb.Store
	w *world
	p *process
}

// Claim checks that every replay of a key has the same result (I9, I11).
func (s *watched) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	gs, err := s.Store.Claim(ctx, c...)
	if err != nil {
		return gs, err
	}
	for i := range gs {
		if gs[i].Err != nil || gs[i].Verdict != driver.Replay {
			continue
		}
		s.w.mu.Lock()
		first, ok := s.w.replay[c[i].Key.Raw]
		s.w.replay[c[i].Key.Raw] = string(gs[i].Result)
		s.w.mu.Unlock()
		if ok && first != string(gs[i].Result) {
			s.w.fail("key %s was replayed as %q, and as %q before (I11)", c[i].Key.Raw, gs[i].Result, first)
		}
	}
	return gs, nil
}

// Finish remembers completions.
func (s *watched) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	out, err := s.Store.Finish(ctx, f...)
	for i := range out {
		s.completed(&f[i], out[i])
	}
	return out, err
}

// Commit remembers completions.
func (s *watched) Commit(ctx context.Context, works ...driver.Work) ([]driver.Outcome, error) {
	out, err := s.Store.Commit(ctx, works...)
	for i := range out {
		s.completed(&works[i].Finish, out[i])
	}
	return out, err
}

// completed checks that only one run completes a key (I6).
func (s *watched) completed(f *driver.Finish, o driver.Outcome) {
	if f.Final != driver.Complete || o != driver.Applied && o != driver.Recovered {
		return
	}
	s.w.mu.Lock()
	first, ok := s.w.completed[f.Hold.Key.Raw]
	s.w.completed[f.Hold.Key.Raw] = string(f.Result)
	s.w.mu.Unlock()
	if ok && first != string(f.Result) {
		s.w.fail("key %s was completed as %q, and as %q before (I6)", f.Hold.Key.Raw, f.Result, first)
	}
}
