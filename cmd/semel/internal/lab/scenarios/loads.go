package scenarios

import (
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

func loads() []plan.Scenario {
	burst := base("burst", "1,000 messages arrive at once")
	burst.Asks = "Does a burst break anything?"
	burst.Hint = "Not by itself: the queue holds the burst, and only the wait grows. Keep the visibility longer than a message waits in " +
		"a worker's buffer."
	burst.Load.Orders = 1000
	burst.Work = plan.Work{Min: time.Millisecond, Max: 3 * time.Millisecond}
	burst.Workers.Visibility = longVisibility
	burst = versus(burst, plan.Plain, plan.Semel)
	burst = expect(burst, plan.GuardOff, plan.Held, plan.Exactly("effects", 1000), plan.AtLeast("delivered", 1000))
	burst = expect(burst, plan.GuardOn, plan.Held, plan.Exactly("effects", 1000), plan.AtLeast("delivered", 1000))

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
	return []plan.Scenario{burst, back}
}
