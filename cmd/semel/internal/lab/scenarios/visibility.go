package scenarios

import (
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// one is a single order whose work takes 1.6 of the visibility: eight seconds of five, five times as fast.
func one(name, title string) plan.Scenario {
	s := base(name, title)
	s.Load.Orders, s.Workers.Count, s.Workers.Prefetch, s.Workers.Concurrency = 1, 2, 1, 1
	s.Work = plan.Work{Min: 1600 * time.Millisecond, Max: 1600 * time.Millisecond}
	s.Load.Faster = 5
	return s
}

func visibility() []plan.Scenario {
	overrun := one("visibility", "The work takes longer than the visibility timeout, and it is not extended")
	overrun.Asks = "What is the visibility timeout for, and what happens when the work takes longer?"
	overrun.Hint = "Extend the visibility while the work goes on (a third of it is a good interval), and claim the key " +
		"before the work: a condition on a record after the work prevents the second record, not the second run."
	overrun.Load.Name = "msg-1"
	overrun = versus(overrun, plan.CheckLast, plan.SemelKeyed)
	overrun = expect(overrun, plan.GuardOff, plan.Broken, plan.AtLeast("executed", 2), plan.AtLeast("effects", 2))
	overrun = expect(overrun, plan.GuardOn, plan.Held, plan.Exactly("executed", 1), plan.Exactly("effects", 1))

	beat := one("heartbeat", "The same work with heartbeats: one start, one completion")
	beat.Asks = "How often does the visibility have to be extended?"
	beat.Hint = "Every third of it, from the receipt on: two extensions may then fail before the message is delivered to another worker."
	beat.Load.Name, beat.Workers.Heartbeat = "msg-2", true
	beat = versus(beat, plan.CheckLast, plan.SemelKeyed)
	beat = expect(beat, plan.GuardOff, plan.Held, plan.Exactly("executed", 1), plan.Exactly("delivered", 1))
	beat = expect(beat, plan.GuardOn, plan.Held, plan.Exactly("effects", 1), plan.Exactly("executed", 1))

	deaf := one("heartbeat-fails", "Every extension is lost on its way: the heartbeat does not arrive")
	deaf.Asks = "Is a heartbeat enough?"
	deaf.Hint = "No: an extension may fail like any call. A worker that lost its lease must not count; semel fences it and repeats the " +
		"work under the same effect key."
	deaf.Workers.Heartbeat, deaf.Wire.FailExtend = true, 1
	// Only the first try takes long: with no extension at all no worker could finish such work.
	deaf.Work = plan.Work{Min: 100 * time.Millisecond, Max: 100 * time.Millisecond, Slow: 1, SlowFor: 1500 * time.Millisecond}
	deaf = versus(deaf, plan.CheckLast, plan.SemelKeyed)
	deaf = expect(deaf, plan.GuardOff, plan.Broken, plan.AtLeast("effects", 2))
	deaf = expect(deaf, plan.GuardOn, plan.Held, plan.Exactly("effects", 1))

	blind := one("no-condition", "The record is written without a condition: the second one goes unseen")
	blind.Asks = "What does the condition on the record do?"
	blind.Hint = "It shows that another worker was first, too late to undo the work. Claim first, then work."
	blind.Load.Name = "msg-3"
	blind = versus(blind, plan.CheckLastBlind, plan.SemelKeyed)
	blind = expect(blind, plan.GuardOff, plan.Broken, plan.AtLeast("executed", 2), plan.AtLeast("effects", 2))

	lock := one("ttl-lock", "A lock that expires while its owner still works")
	lock.Asks = "Does a distributed lock make it happen once?"
	lock.Hint = "Only one that is extended, owned and fenced. Without a token the first owner deletes the second one's lock."
	lock.Workers.Count = 3
	lock = versus(lock, plan.TTLLock, plan.SemelKeyed)
	lock = expect(lock, plan.GuardOff, plan.Broken, plan.AtLeast("holders", 2))
	lock = expect(lock, plan.GuardOn, plan.Held, plan.Exactly("effects", 1), plan.Exactly("holders", 1))
	return []plan.Scenario{overrun, beat, deaf, blind, lock}
}
