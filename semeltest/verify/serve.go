package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// boot makes the program's own parts of a process, and returns the function that runs it.
func (p *Process) boot() (run func(), err error) {
	if p.w.opts.Serve != nil {
		serve := p.w.opts.Serve(p)
		if serve == nil {
			return nil, fieldError("Serve", "returned nil", "return the function that handles a request")
		}
		if p.store == nil {
			return nil, fieldError("Serve", "made no store", "give semel.Do the store that Process.Store(nil) returns")
		}
		p.queue = newShellQueue(p, p.w.mem.Queue("verify"))
		return func() { p.serve(serve) }, nil
	}
	cfg := p.configure(p.w.opts.Worker(p))
	middleware := cfg.Middleware
	cfg.Middleware = append([]semel.Middleware{p.middleware}, middleware...)
	p.around = true
	c, err := semel.New(cfg)
	if bad := (*semel.ConfigError)(nil); errors.As(err, &bad) && bad.Field == "Middleware" {
		cfg.Middleware, p.around = middleware, false // a batch handler
		c, err = semel.New(cfg)
	}
	switch {
	case errors.Is(err, semel.ErrNoTx):
		return nil, fmt.Errorf("%w: let Worker open the store that offers it, and return it in Config.Store", err)
	case err != nil:
		return nil, err
	}
	p.w.update(func() { p.w.how.around, p.w.how.open = p.around, c.Guarantee().Mode == "B/C" })
	return func() { _ = c.Run(p.ctx) }, nil // stuck handlers are found by the schedule's limit
}

// attempts is how often a client sends a failed request again.
const attempts = 5

// serve is the receive loop of a program without a consumer: a request that failed is sent again by its client.
func (p *Process) serve(handle func(context.Context, semel.Message) error) {
	failed := map[string]int{}
	for {
		ds, err := p.queue.Receive(p.ctx, 1)
		if err != nil {
			return
		}
		for _, d := range ds {
			s := driver.Settlement{Receipt: d.Receipt, Action: driver.Ack}
			returned, err := p.call(handle, d.Message)
			switch {
			case !returned: // the goroutine ended, and with it the request
				s.Action = driver.Defer
			case errors.Is(err, semel.ErrBusy):
				s.Action, s.After = driver.Defer, soon
			case err != nil:
				s.Action = driver.Retry
				if failed[d.ID]++; failed[d.ID] >= attempts || errors.Is(err, semel.ErrFailed) || errors.Is(err, semel.ErrUncertain) {
					kind := driver.DeadLetterFailed
					if errors.Is(err, semel.ErrUncertain) {
						kind = driver.DeadLetterUncertain
					}
					s.Action, s.DeadLetter = driver.Dead, &driver.DeadLetter{ID: d.ID, Kind: kind, Reason: err.Error()}
				}
			}
			_, _ = p.queue.Settle(p.ctx, s) // of a dead process: nothing
		}
	}
}

// call runs one request in its own goroutine, which may end without a return.
func (p *Process) call(handle func(context.Context, semel.Message) error, m semel.Message) (returned bool, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				returned, err = true, fmt.Errorf("panic: %v", v)
			}
		}()
		err = handle(p.ctx, m)
		returned = true
	}()
	<-done
	return returned, err
}
