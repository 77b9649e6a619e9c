package scenarios

import (
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

func loads() []plan.Scenario {
	back := base("backpressure", "More messages arrive than one worker can handle: the number of workers follows the backlog")
	back.Asks = "How many workers do I need, and when does the backlog stop growing?"
	back.Hint = "Scale by backlog per worker: the number of messages that one worker handles in the time that a message may wait."
	back.Slow = true
	back.Load.Orders, back.Load.Rate = 320, 40
	back.Work = plan.Work{Min: 80 * time.Millisecond, Max: 120 * time.Millisecond}
	back.Workers.Count, back.Workers.Concurrency, back.Workers.Prefetch = 8, 1, 1
	back.Workers.Visibility = 5 * time.Second
	back.Workers.Scale = plan.Scale{Backlog: 8, From: 1, Every: 300 * time.Millisecond, GuardOn: true}
	back.Timeout = 3 * time.Minute
	back = versus(back, plan.CheckLast, plan.Semel)
	back = expect(back, plan.GuardOff, plan.Held, plan.Exactly("settled", 0), plan.AtLeast("backlog", 100))
	back = expect(back, plan.GuardOn, plan.Held, plan.Exactly("effects", 320), plan.Exactly("settled", 1), plan.AtLeast("workers_peak", 3))
	return []plan.Scenario{back}
}
