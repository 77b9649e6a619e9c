package ops

import (
	"context"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// kept is a queue that keeps messages for a while, and moves them to a dead-letter queue and back.
type kept struct {
	driver.Queue
	live LiveQueue
}

func (q kept) Features() driver.QueueFeatures {
	f := q.Queue.Features()
	f.Retention, f.Orders, f.Redrives = q.live.Retention, q.live.FIFO, q.live.MaxReceives > 0
	f.Horizon = f.Retention
	if f.Redrives {
		f.Horizon = driver.LateBy(f.Retention, driver.MovedBack(f.Retention, q.live.DeadLetterRetention, q.live.FIFO), 0)
	}
	return f
}

// TestWorkDoctorAndAdviseAgree: for any queue the worker keeps records for as long as advise says, and for doctor they cover the
// same horizon: as the queue is set now, and once its dead-letter queue keeps messages as advised.
func TestWorkDoctorAndAdviseAgree(t *testing.T) {
	db := memory.Open()
	for _, retention := range []time.Duration{4 * day, 14 * day, 36 * time.Hour} {
		for _, dead := range []time.Duration{day, 4 * day, 10 * day, 14 * day} {
			for _, producers := range []time.Duration{0, 90 * time.Minute, 3 * day} {
				for _, more := range []LiveQueue{{}, {MaxReceives: 200}, {FIFO: true}, {FIFO: true, MaxReceives: 200}} {
					live := more
					live.Retention, live.DeadLetterRetention = retention, dead
					q := kept{db.Queue("orders"), live}
					c, err := semel.New(semel.Config{
						Queue: q, Store: db.Store(), ProducerRetries: producers,
						Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
					})
					if err != nil {
						t.Fatal(err)
					}
					window, horizon := c.Window()
					now, advised := LatenessOf(q.Features(), producers), LatenessOf(q.Features(), producers)
					if l, ok := LatenessAdvised(q.Features(), producers); ok {
						advised = l
					}
					s := (Workload{Kind: KindSQS, ProducerRetries: producers, Live: &live}).Settings()
					switch {
					case now.Horizon() != horizon || RetentionFor(horizon) != window:
						t.Errorf("%+v: doctor's horizon is %s, the worker's %s, kept for %s", live, now.Horizon(), horizon, window)
					case s.Horizon != advised.Horizon() || s.Retention != RetentionFor(advised.Horizon()):
						t.Errorf("%+v: advise says horizon %s and retention %s, doctor %s once that is set", live, s.Horizon, s.Retention,
							advised.Horizon())
					case s.DeadLetterRetention == dead && advised != now:
						t.Errorf("%+v: nothing is to be changed, and the horizon changes: %+v", live, advised)
					}
					if live.MaxReceives > 0 && DeadLettersKept(q.Features()) != dead {
						t.Errorf("%+v: dead letters are taken to be kept for %s", live, DeadLettersKept(q.Features()))
					}
				}
			}
		}
	}
}
