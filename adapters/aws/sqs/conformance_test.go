package sqs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// kinds runs a test on both kinds of queues and in both modes of the fake.
func kinds(t *testing.T, f func(t *testing.T, s setup)) {
	for _, name := range []string{"orders", "orders.fifo"} {
		for mode, what := range map[fakesqs.Mode]string{fakesqs.AWS: "aws", fakesqs.Strict: "strict"} {
			t.Run(fmt.Sprintf("%s/%s", name, what), func(t *testing.T) {
				f(t, setup{name: name, fake: fakesqs.Options{Mode: mode}, o: Options{Ungrouped: true}})
			})
		}
	}
}

// largest is a body that fits with its attributes when it has to be sent as base64.
const largest = (maxSize - 4096) / 4 * 3

func TestQueueSuite(t *testing.T) {
	kinds(t, func(t *testing.T, s setup) {
		semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
			s.frozen = true
			b := newBench(t, s)
			return semeltest.QueueSetup{
				Queue: newResent(b.q), Advance: b.clock.Advance, MaxBody: largest, OwnDelays: b.q.is.fifo,
			}
		})
	})
}

// TestQueueSuiteRealClock uses a short visibility and real waits.
func TestQueueSuiteRealClock(t *testing.T) {
	kinds(t, func(t *testing.T, s setup) {
		semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
			s.o.Visibility, s.o.letterShort = 2*time.Second, true // a look at letters takes a second else
			b := newBench(t, s)
			return semeltest.QueueSetup{
				Queue: newResent(b.q), Visibility: 2 * time.Second, MaxBody: largest, OwnDelays: b.q.is.fifo,
			}
		})
	})
}

func TestPairSuite(t *testing.T) {
	kinds(t, func(t *testing.T, s setup) {
		semeltest.RunPair(t, func(t testing.TB) semeltest.PairSetup {
			// With a redrive policy the engine defers duplicates of a busy key for minutes in the end.
			s.o.Visibility, s.create.MaxReceive = 2*time.Second, -1
			s.o.LetterQueue = strings.Replace("orders-dead.fifo", ".fifo", strings.TrimPrefix(s.name, "orders"), 1)
			b := newBench(t, s)
			return semeltest.PairSetup{Queue: newResent(b.q), Store: memory.NewStore()}
		})
	})
}
