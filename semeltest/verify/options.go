package verify

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/semel-dev/semel"
)

// DefaultLimit is the default of Options.Limit.
const DefaultLimit = 10 * time.Second

// Options configure the verifier. Worker (or Serve) and Messages are required; the zero value of everything else is the
// documented default.
type Options struct {
	// Worker makes what one process of the program makes when it starts: its clients, its database handles, and with them
	// the Config that it gives to [semel.New]. It is called once for every process of every schedule, because a process
	// that dies loses its memory: state that has to survive belongs into what Reset makes.
	//
	// Queue and Store may be left nil: queue and records are in memory then, and a handler that queues *semel.Statements
	// is judged by what it queued, without a database. The verifier chooses Concurrency, Batch, Committers, Visibility,
	// Grace, Backoff and Limit; everything else is used as it is.
	Worker func(p *Process) semel.Config
	// Serve stands in for Worker in programs without a consumer, which call [semel.Do]: it makes the function that handles
	// one request, on a store that [Process.Store] made. An error is a failed request, which the client sends again.
	Serve func(p *Process) func(ctx context.Context, m semel.Message) error

	// Messages are samples: every schedule runs for each of them alone. Two that differ in their key find effect keys
	// that are the same for all messages. A message without ID gets one.
	Messages []semel.Message
	// Reset makes the world outside of the processes as it was before the message: fake servers, files, tables. It is
	// called before every schedule. Defaults to nothing.
	Reset func()
	// State reads the world when a schedule has ended; it must equal the state after the plain run (reflect.DeepEqual). It
	// finds effects that are not recorded, and is the judge of SQL that changes rows again: such a statement is fine when
	// the state is. Defaults to none.
	State func() any

	// HTTPKey is the key by which the servers deduplicate a request; "" = none. Defaults to the header Idempotency-Key.
	HTTPKey func(r *http.Request, body []byte) string
	// Limit bounds one schedule: a handler that takes longer is reported. Defaults to 10 s.
	Limit time.Duration

	straggle time.Duration
}

// errOptions is what wrong options are wrapped with.
var errOptions = errors.New("verify: options")

func (o *Options) resolve() error {
	switch {
	case o.Worker == nil && o.Serve == nil:
		return fieldError("Worker", "is nil", "give the function that makes the semel.Config of a process")
	case o.Worker != nil && o.Serve != nil:
		return fieldError("Serve", "is set, and so is Worker", "give one of them")
	case len(o.Messages) == 0:
		return fieldError("Messages", "is empty", "give a message that the handler takes")
	case o.Limit < 0:
		return fieldError("Limit", "is negative", "use 0 for the default of 10 s")
	}
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	if o.straggle == 0 {
		o.straggle = 20 * time.Millisecond
	}
	if o.HTTPKey == nil {
		o.HTTPKey = func(r *http.Request, _ []byte) string { return r.Header.Get("Idempotency-Key") }
	}
	if o.Reset == nil {
		o.Reset = func() {}
	}
	return nil
}

func fieldError(field, problem, hint string) error {
	return errors.Join(errOptions, errors.New(field+" "+problem+" ("+hint+")"))
}
