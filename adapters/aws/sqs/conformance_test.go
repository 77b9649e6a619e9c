package sqs

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// TestMain lets many tests run at once, independent of the number of processors: the suites on a real clock mostly wait for
// visibility timeouts.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// kinds runs a test on both kinds of queues and in both modes of the fake, all at once.
func kinds(t *testing.T, f func(t *testing.T, s setup)) {
	for _, name := range []string{"orders", "orders.fifo"} {
		for mode, what := range map[fakesqs.Mode]string{fakesqs.AWS: "aws", fakesqs.Strict: "strict"} {
			t.Run(fmt.Sprintf("%s/%s", name, what), func(t *testing.T) {
				t.Parallel()
				f(t, setup{name: name, fake: fakesqs.Options{Mode: mode}, o: Options{Ungrouped: true}})
			})
		}
	}
}

// waiting marks a test that waits for a real clock. With -short it runs only on queues of the given kinds in mode AWS, and
// logs what it leaves out.
func waiting(t *testing.T, s setup, short ...string) {
	t.Helper()
	if testing.Short() && (s.fake.Mode != fakesqs.AWS || !slices.Contains(short, s.name)) {
		t.Skip("it waits for a real clock; leave -short out")
	}
}

// largest is a body that fits with its attributes when it has to be sent as base64.
const largest = (maxSize - 4096) / 4 * 3

func TestQueueSuite(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, s setup) {
		semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
			// A poll of the suite ends after a tenth of a second. On a clock that stands still, messages that SQS has
			// delivered by then would stay hidden. So calls do not wait at the service, but for its response.
			s.frozen, s.o.Wait, s.o.grace = true, ShortPoll, time.Minute
			b := newBench(t, s)
			return semeltest.QueueSetup{
				Queue: newResent(b.q), Advance: b.clock.Advance, MaxBody: largest, OwnDelays: b.q.is.fifo,
				Restart: b.restart,
			}
		})
	})
}

// TestQueueSuiteRealClock uses real waits, with a visibility that is long enough for a case that holds deliveries for two
// seconds on a busy machine.
func TestQueueSuiteRealClock(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, s setup) {
		waiting(t, s, "orders")
		semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
			s, visible := s, semeltest.Longer(t, 4*time.Second)
			s.o.Visibility, s.o.grace, s.o.deadLetterShort = visible, time.Millisecond, true // a look at dead letters takes a second else
			b := newBench(t, s)
			return semeltest.QueueSetup{
				Queue: newResent(b.q), Visibility: visible, MaxBody: largest, OwnDelays: b.q.is.fifo,
				Restart: b.restart,
			}
		})
	})
}

func TestPairSuite(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, s setup) {
		waiting(t, s, "orders", "orders.fifo")
		semeltest.RunPair(t, func(t testing.TB) semeltest.PairSetup {
			s := s
			// With a redrive policy the engine finally defers duplicates of a busy key for minutes.
			s.o.Visibility, s.create.MaxReceive = semeltest.Longer(t, 2*time.Second), -1
			s.o.DeadLetterQueue = strings.Replace("orders-dead.fifo", ".fifo", strings.TrimPrefix(s.name, "orders"), 1)
			b := newBench(t, s)
			return semeltest.PairSetup{Queue: newResent(b.q), Store: memory.NewStore(), Visibility: s.o.Visibility}
		})
	})
}
