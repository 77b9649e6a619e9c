package sqs

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest"
)

// TestLooksWaitWithinTheirContext: while one look at the dead letters hangs, another waits for it no longer than its ctx.
func TestLooksWaitWithinTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := awstest.NewFaults(awstest.Plan{Schedule: []awstest.Fault{{Operation: "ReceiveMessage", Call: 1, Kind: awstest.Hang}}})
		b := newBench(t, setup{wrap: []func(http.RoundTripper) http.RoundTripper{f.Wrap}})
		ctx, cancel := context.WithCancel(t.Context())
		hung := make(chan error)
		go func() {
			_, err := b.q.DeadLetterQueue().DeadLetters(ctx, 0)
			hung <- err
		}()
		synctest.Wait()
		began := time.Now()
		short, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		err := b.q.DeadLetterQueue().DeleteDeadLetter(short, "none")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("a look behind one that hangs answered %v after %v, wanted its own deadline of a second", err, time.Since(began))
		}
		cancel()
		if err := <-hung; err == nil {
			t.Error("the look that hung answered without an error")
		}
	})
}
