package scenarios

import (
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

func deaths() []plan.Scenario {
	crash := base("crash", "Workers are killed after the effect, before the ack")
	crash.Asks = "A worker dies in the middle of its work: what happens to the message?"
	crash.Hint = "The queue delivers it again. Commit the effect with its record, or call under an effect key, so that the " +
		"second run finds the work done."
	crash.Faults = []plan.Fault{
		{Do: plan.Kill, Step: plan.AfterEffect, Count: 2},
		{Do: plan.Kill, Step: plan.AfterReceive, Count: 1, GuardOn: true, ByPassage: true},
		{Do: plan.Kill, Step: plan.AfterClaim, Count: 1, GuardOn: true},
	}
	crash = versus(crash, plan.CheckLast, plan.Semel)
	crash = expect(crash, plan.GuardOff, plan.Broken, plan.AtLeast("duplicated", 2), plan.Exactly("kills", 2))
	crash = expect(crash, plan.GuardOn, plan.Held, plan.Exactly("effects", 30), plan.AtLeast("kills", 3))

	crashy := base("crashy", "A worker dies at one message in five, before the work or after it")
	crashy.Asks = "My workers keep crashing: does the work get done, and only once?"
	crashy.Hint = "Every crash redelivers what the worker had in flight. With the guard it costs time, not money: look at the deliveries."
	crashy.Faults = []plan.Fault{
		{Do: plan.Kill, Step: plan.AfterEffect, Count: 3},
		{Do: plan.Kill, Step: plan.AfterReceive, Count: 3},
	}
	crashy = versus(crashy, plan.CheckLast, plan.Semel)
	crashy = expect(crashy, plan.GuardOff, plan.Broken, plan.AtLeast("duplicated", 3), plan.Exactly("kills", 6))
	crashy = expect(crashy, plan.GuardOn, plan.Held, plan.Exactly("effects", 30), plan.Exactly("dead", 0), plan.Exactly("kills", 6))

	effects := base("side-effects", "Workers die after the commit of the effect, before the ack")
	effects.Asks = "Why must effect and record be one transaction?"
	effects.Hint = "Two tables and no transaction leave a gap between effect and record. One transaction has no gap."
	effects.Faults = []plan.Fault{
		{Do: plan.Kill, Step: plan.AfterEffect, Count: 2},
		{Do: plan.Kill, Step: plan.AfterCommit, Count: 2, GuardOn: true},
	}
	effects.Wire.LoseCommit = 0.1
	effects = versus(effects, plan.CheckLast, plan.Semel)

	lost := base("lost-work", "A duplicate of a message in progress is deleted, and the owner dies")
	lost.Asks = "A message is being worked on elsewhere: may I delete the duplicate?"
	lost.Hint = "Never: it is the only thing left when the owner dies. Put it back, and take over when the lease expires."
	lost.Faults = []plan.Fault{{Do: plan.Kill, Step: plan.AfterClaim, Count: 2}}
	lost = versus(lost, plan.SkipBusy, plan.Semel)
	lost = expect(lost, plan.GuardOff, plan.Broken, plan.AtLeast("lost", 2))

	failed := base("failed-retry", "Some orders fail at their first try, and their mark stays")
	failed.Asks = "What must the mark record when the work has failed?"
	failed.Hint = "That it may be tried again. A mark that only records that the work began blocks its own retry."
	failed.Load.FailOnce = 4
	failed = versus(failed, plan.SkipBusy, plan.Semel)
	failed = expect(failed, plan.GuardOff, plan.Broken, plan.AtLeast("lost", 4))
	failed = expect(failed, plan.GuardOn, plan.Held, plan.Exactly("effects", 30), plan.Exactly("dead", 0))

	mark := base("mark-first", "The id is recorded before the start, and the process dies in between")
	mark.Asks = "May I record the id first and then start the work?"
	mark.Hint = "Not without a lease and a state that moves on: if the process dies in between, the file is never processed."
	mark.Faults = []plan.Fault{{Do: plan.Kill, Step: plan.AfterClaim, Count: 2}}
	mark = versus(mark, plan.MarkFirst, plan.SemelKeyed)
	mark = expect(mark, plan.GuardOff, plan.Broken, plan.AtLeast("lost", 2))

	zombie := base("zombie", "A worker is frozen past its lease, and wakes up")
	zombie.Asks = "What if the old owner is not dead, only late?"
	zombie.Hint = "Compare a fencing token in every write: the late worker writes nothing and acks nothing."
	zombie.Load.Orders = 12
	zombie.Faults = []plan.Fault{{Do: plan.Freeze, Step: plan.AfterEffect, Count: 1, For: 2500 * time.Millisecond}}
	zombie = versus(zombie, plan.TTLLock, plan.Semel)
	zombie = expect(zombie, plan.GuardOn, plan.Held, plan.Exactly("effects", 12), plan.AtLeast("taken_over", 1))

	outage := base("outage", "The database is out of reach for a while")
	outage.Asks = "The store does not respond: skip, or retry?"
	outage.Hint = "Retry. The outcome of a write without a response is unknown; only a claim that can be taken over survives it."
	outage.Faults = []plan.Fault{{Do: plan.Outage, Step: plan.Outside, Count: 1, For: 1500 * time.Millisecond}}
	outage.Work = plan.Work{Min: 100 * time.Millisecond, Max: 200 * time.Millisecond}
	outage = versus(outage, plan.SkipBusy, plan.Semel)
	outage = expect(outage, plan.GuardOff, plan.Broken, plan.AtLeast("lost", 1))

	deploy := base("deploy", "A rolling deployment replaces every worker")
	deploy.Asks = "What happens to the work in flight during a deployment?"
	deploy.Hint = "Drain on SIGTERM: finish the work that has begun, and return the rest. A worker that fails to drain must be harmless as well."
	deploy.Load.Orders = 60
	deploy.Work = plan.Work{Min: 80 * time.Millisecond, Max: 120 * time.Millisecond}
	deploy.Faults = []plan.Fault{{Do: plan.Deploy, Step: plan.Outside, Count: 4}}
	deploy = versus(deploy, plan.SkipBusy, plan.Semel)
	deploy = expect(deploy, plan.GuardOff, plan.Broken, plan.AtLeast("lost", 1))
	return []plan.Scenario{crash, crashy, effects, lost, failed, mark, zombie, outage, deploy}
}
