package scenarios

import (
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// longVisibility is longer than the delays of a busy machine: where nothing is meant to fail, nothing is delivered twice.
const longVisibility = 5 * time.Second

func basics() []plan.Scenario {
	happy := base("happy", "Nothing goes wrong: every message is processed and acked")
	happy.Asks = "Does the guard cost anything while nothing goes wrong?"
	happy.Hint = "Nothing to fix. Both designs do every order once. They differ when something goes wrong."
	happy.Workers.Visibility = longVisibility
	happy = versus(happy, plan.Plain, plan.Semel)
	happy = expect(happy, plan.GuardOff, plan.Held, plan.Exactly("effects", 30), plan.Exactly("dead", 0))
	happy = expect(happy, plan.GuardOn, plan.Held, plan.Exactly("effects", 30), plan.AtLeast("executed", 30), plan.Exactly("dead", 0))

	replicas := base("replicas", "200 messages over three workers, none of them twice")
	replicas.Asks = "Can I scale out without processing anything twice?"
	replicas.Hint = "As long as nothing fails, the queue alone keeps workers apart. Failures need the guard."
	replicas.Load.Orders = 200
	replicas.Workers.Visibility = longVisibility
	replicas = versus(replicas, plan.Plain, plan.Semel)
	replicas = expect(replicas, plan.GuardOff, plan.Held, plan.Exactly("effects", 200))
	replicas = expect(replicas, plan.GuardOn, plan.Held, plan.Exactly("effects", 200))

	race := base("race", "50 messages of one key meet three workers at once")
	race.Asks = "Two workers take the same job in the same moment: who wins?"
	race.Hint = "Claim the key in the database before the work: one claim wins, the others wait and then find the work done."
	race.Load.Orders, race.Load.PerKey = 1, 50
	race.Work = plan.Work{Min: 200 * time.Millisecond, Max: 200 * time.Millisecond}
	race.Workers.Visibility = 3 * time.Second
	race = versus(race, plan.CheckLast, plan.Semel)
	race = expect(race, plan.GuardOff, plan.Broken, plan.AtLeast("effects", 2))
	race = expect(race, plan.GuardOn, plan.Held,
		plan.Exactly("effects", 1), plan.Exactly("executed", 1), plan.Exactly("holders", 1), plan.AtLeast("replayed", 49))
	return []plan.Scenario{happy, replicas, race}
}
