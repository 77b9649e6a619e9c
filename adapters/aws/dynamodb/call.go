package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/semel-dev/semel/driver"
)

// once switches the SDK's retries off. The store retries by itself, so it knows whether a write may have been applied.
func once(o *awsdynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// fate is what is known of a request.
type fate uint8

const (
	done      fate = iota // it succeeded
	refused               // it was not carried out, and repeating it does not help
	again                 // it was not carried out; repeat it
	unknown               // it may have been carried out; repeat the same request
	condition             // its condition failed
)

// fateOf classifies the error of a request.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
func fateOf(err error) fate {
	var api smithy.APIError
	if !errors.As(err, &api) {
		if notSent(err) {
			return refused
		}
		return unknown // no response, or none that can be read
	}
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) {
		return fateOfReasons(cancelled.CancellationReasons)
	}
	switch api.ErrorCode() {
	case "ConditionalCheckFailedException":
		return condition
	case "TransactionConflictException", "ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException",
		"Throttling", "ThrottledException", "RequestThrottled", "RequestThrottledException", "TooManyRequestsException",
		"ReplicatedWriteConflictException":
		return again
	case "InternalServerError", "InternalFailure", "ServiceUnavailable", "TransactionInProgressException":
		return unknown
	}
	if api.ErrorFault() == smithy.FaultServer || statusOf(err) >= 500 {
		return unknown
	}
	return refused
}

// statusOf returns the HTTP status of a response, 0 if there was none.
func statusOf(err error) int {
	var resp interface{ HTTPStatusCode() int }
	if errors.As(err, &resp) {
		return resp.HTTPStatusCode()
	}
	return 0
}

// notSent reports that the SDK refused a request before it was sent: nothing was signed or serialized.
func notSent(err error) bool {
	var s *smithy.SerializationError
	var p smithy.InvalidParamsError
	return errors.As(err, &s) || errors.As(err, &p)
}

// Codes of cancellation reasons.
const (
	reasonNone      = "None"
	reasonCondition = "ConditionalCheckFailed"
	reasonConflict  = "TransactionConflict"
)

// fateOfReasons classifies a cancelled transaction. A conflict and throttling say nothing about any condition (protocol
// section 3).
func fateOfReasons(reasons []types.CancellationReason) fate {
	f := refused
	for _, r := range reasons {
		switch aws.ToString(r.Code) {
		case reasonConflict, "ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded":
			return again
		case reasonCondition:
			f = condition
		}
	}
	return f
}

// repeater repeats requests with growing pauses, until RetryFor has passed or ctx is done.
type repeater struct {
	s     *Store
	until time.Time
	pause time.Duration
	// maybe: a request got no response, so it may have been applied. last is the fate of the latest request.
	maybe bool
	last  fate
}

func (s *Store) repeater() repeater {
	return repeater{s: s, until: time.Now().Add(s.o.RetryFor), pause: 20 * time.Millisecond}
}

// call sends one request within CallTimeout.
func (s *Store) call(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	s.meter.call()
	return f(ctx)
}

// do sends a request until repeating it would not change the response.
func (r *repeater) do(ctx context.Context, f func(ctx context.Context) error) (fate, error) {
	var before error // of the request before, if there was no response to it
	for {
		is, err := r.try(ctx, f)
		if is != again && is != unknown {
			return is, err
		}
		if is == unknown && ctx.Err() != nil {
			err = errors.Join(err, before) // else only the end of ctx would be known
		}
		if werr := r.wait(ctx); werr != nil {
			return is, errors.Join(err, werr)
		}
		var api smithy.APIError
		if before = nil; !errors.As(err, &api) {
			before = err
		}
	}
}

// try sends a request once.
func (r *repeater) try(ctx context.Context, f func(ctx context.Context) error) (fate, error) {
	err := r.s.call(ctx, f)
	if err == nil {
		return done, nil
	}
	r.last = fateOf(err)
	r.maybe = r.maybe || r.last == unknown
	return r.last, err
}

var errTooLong = errors.New("repeated for as long as Options.RetryFor allows")

// wait pauses before a repetition, for a random time up to a bound that doubles.
func (r *repeater) wait(ctx context.Context) error {
	d := time.Duration(rand.Int64N(int64(r.pause))) + r.pause/4
	r.pause = min(2*r.pause, time.Second)
	if time.Now().Add(d).After(r.until) {
		return errTooLong
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failed explains the error of a change. If the write definitely did not happen, and may succeed at the next try, the error
// wraps [driver.ErrNotCommitted].
func (r *repeater) failed(err error, action string) error {
	err = explain(err, action, r.s.table)
	if r.maybe || r.last == refused || errors.Is(err, driver.ErrNotCommitted) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrNotCommitted, err)
}

// meter counts calls and units.
type meter struct {
	mu  sync.Mutex
	sum driver.Units
}

func (m *meter) call() {
	m.mu.Lock()
	m.sum.Calls++
	m.mu.Unlock()
}

func (m *meter) units() driver.Units {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sum
}

func (m *meter) add(reads, writes float64) {
	m.mu.Lock()
	m.sum.Reads += reads
	m.sum.Writes += writes
	m.mu.Unlock()
}

// read and wrote count the units that responses report.
func (m *meter) read(c ...types.ConsumedCapacity) {
	for i := range c {
		if n := aws.ToFloat64(c[i].ReadCapacityUnits); n > 0 {
			m.add(n, 0)
		} else {
			m.add(aws.ToFloat64(c[i].CapacityUnits), 0)
		}
	}
}

func (m *meter) wrote(c ...types.ConsumedCapacity) {
	for i := range c {
		switch n := aws.ToFloat64(c[i].WriteCapacityUnits); {
		case n > 0:
			m.add(0, n)
		case aws.ToFloat64(c[i].ReadCapacityUnits) > 0: // a repeated transaction only reads
			m.read(c[i])
		default:
			m.add(0, aws.ToFloat64(c[i].CapacityUnits))
		}
	}
}

// failedWrite counts a write whose condition failed on an item.
func (m *meter) failedWrite(item attrs) { m.add(0, unitsOf(itemSize(item))) }

// unitsOf returns what a write of n bytes costs.
func unitsOf(n int) float64 { return float64(max(1, (n+1023)/1024)) }

func capacity(c *types.ConsumedCapacity) []types.ConsumedCapacity {
	if c == nil {
		return nil
	}
	return []types.ConsumedCapacity{*c}
}
