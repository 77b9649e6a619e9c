package report

import (
	"fmt"
	"time"

	"github.com/semel-dev/semel/internal/words"
)

// setting is one line of the settings.
type setting struct{ Name, Value string }

// Settings are the scenario's, as far as they say something.
func (sc *scenarioView) Settings() (out []setting) {
	s := sc.Timeline.Scenario
	add := func(name string, shown bool, format string, a ...any) {
		if shown {
			out = append(out, setting{name, fmt.Sprintf(format, a...)})
		}
	}
	add("Orders", true, "%d × %s", s.Load.Orders, Money(s.Load.Amount, s.Load.Currency))
	add("Messages of each key", s.Load.PerKey > 1, "%d", s.Load.PerKey)
	add("Sent twice by the producer", s.Load.Retries > 0 || sc.Demo, "%d", s.Load.Retries)
	add("Sent again when all is done", s.Load.Again > 0, "%d", s.Load.Again)
	add("Orders that no handler can do", s.Load.Poison > 0, "%d", s.Load.Poison)
	add("Versions of each order", s.Load.Versions > 0, "%d", s.Load.Versions)
	add("Items in a message", s.Load.Items > 0, "%d, %d of them fail at first", s.Load.Items, s.Load.BadItems)
	add("Each order", s.Load.Saga, "a saga of these items")
	add("Each order", s.Load.Mail, "a charge and a mail")
	add("Messages a second", s.Load.Rate > 0, "%g", s.Load.Rate)
	add("Workers at the start", s.Workers.Scale.Backlog > 0, "%d, one for %d waiting", s.Workers.Scale.From, s.Workers.Scale.Backlog)
	add("Worker processes", true, "%d", s.Workers.Count)
	add("Handlers at once, guard on", true, "%d per worker", s.Workers.Concurrency)
	add("Buffer, guard off", true, "%s, one at a time", words.Count(s.Workers.Prefetch, "message", "messages"))
	add("Visibility timeout", true, "%s", s.Workers.Visibility)
	add("Heartbeat, guard off", s.Workers.Heartbeat, "every third of it")
	add("Attempts", s.Workers.MaxAttempts > 0, "%d", s.Workers.MaxAttempts)
	add("Handler", true, "%s to %s", round(s.Work.Min), round(s.Work.Max))
	add("Orders that hang once", s.Work.Slow > 0, "%d, for %s", s.Work.Slow, s.Work.SlowFor)
	add("Acks that the queue forgets", s.Wire.ForgetAck > 0, "%.0f %%", 100*s.Wire.ForgetAck)
	add("Acks without a response", s.Wire.LoseAck > 0, "%.0f %%", 100*s.Wire.LoseAck)
	add("Extensions that fail", s.Wire.FailExtend > 0, "%.0f %%", 100*s.Wire.FailExtend)
	add("Commits without a response", s.Wire.LoseCommit > 0, "%.0f %%", 100*s.Wire.LoseCommit)
	add("Services without a response", s.Wire.LoseEffect > 0, "%.0f %%", 100*s.Wire.LoseEffect)
	add("Slow calls of the store", s.Wire.SlowStore > 0, "%.0f %%, by %s", 100*s.Wire.SlowStore, s.Wire.SlowFor)
	add("Queue, records, ledger", true, "%s", sc.Timeline.Place)
	add("Seed", true, "%d", sc.Timeline.Seed)
	return out
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
