package load

import (
	"fmt"
	"math"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
)

// Options say what is measured. The zero value of a number is its default.
type Options struct {
	// N is the number of messages. SameKey: all of them have one key, and only one may take effect.
	N       int
	SameKey bool
	// Workers is the number of worker processes, Concurrency how many handlers each of them runs at once.
	Workers, Concurrency int
	// HandlerTime is how long a handler takes. 0 = no time, which measures semel alone.
	HandlerTime time.Duration
	// Visibility is that of the queue. A duplicate that meets its key at work waits for up to 0.9 of it.
	Visibility time.Duration
	// Rate is messages per second; 0 = as fast as they can be sent.
	Rate float64
	// Where is the pair of queue and store: each run makes queue and records of its own there.
	Where place.Where
	// Timeout bounds the wait for the workers.
	Timeout time.Duration
	// Keep keeps the folder with the workers' logs, events and effects, and what was made elsewhere.
	Keep bool
	// Command starts a worker: the own program. Env is added to its environment.
	Command, Env []string
	// Progress gets short lines for a person. nil = none.
	Progress func(string)
}

// The bounds of a run.
const (
	maxMessages    = 1_000_000
	maxWorkers     = 64
	maxConcurrency = 1000
	maxHandler     = time.Hour
)

// UsageError is an option out of its bounds.
type UsageError struct{ Flag, Problem string }

func (e *UsageError) Error() string { return fmt.Sprintf("--%s: %s", e.Flag, e.Problem) }

// Check refuses what cannot be measured, before anything is made. Errors are of usage.
func (o *Options) Check() error {
	for _, b := range []struct {
		flag    string
		v, most int
	}{{"n", o.N, maxMessages}, {"workers", o.Workers, maxWorkers}, {"concurrency", o.Concurrency, maxConcurrency}} {
		if b.v < 1 || b.v > b.most {
			return &UsageError{b.flag, fmt.Sprintf("%d is not from 1 to %d", b.v, b.most)}
		}
	}
	switch {
	case o.SameKey && o.N < 2:
		return &UsageError{"same-key", "one message has no duplicates: --n 2 or more"}
	case o.HandlerTime < 0 || o.HandlerTime > maxHandler:
		return &UsageError{"handler-time", fmt.Sprintf("%s is not from 0s to %s", o.HandlerTime, maxHandler)}
	case o.Rate < 0 || o.Rate > 1e6 || math.IsNaN(o.Rate):
		return &UsageError{"rate", "want 0 to 1000000 messages per second"}
	case o.Visibility < time.Second || o.Visibility > time.Hour || o.Visibility%time.Second != 0:
		return &UsageError{"visibility", fmt.Sprintf("%s is not a whole number of seconds from 1s to 1h", o.Visibility)}
	case o.Timeout <= 0:
		return &UsageError{"timeout", "want more than 0s"}
	}
	return o.Where.Check()
}
