package cli

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/scenarios"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// whereFlags bind where something is made and removed.
func whereFlags(f *pflag.FlagSet, w *place.Where) {
	f.StringVar(&w.On, "on", "", "where, if no URL is given: embedded (SQLite files), postgres (PGHOST, PGDATABASE, …), or aws (SQS and DynamoDB, "+
		"as local fakes) (default embedded)")
	fixed(f, "on", place.Ons()...)
	f.StringVar(&w.Queue, "queue", "", "URL of a place for queues, which are made and removed (default: where the store is)")
	f.StringVar(&w.Store, "store", "", "URL of a place for records and ledger, which are made and removed (default: where the queue is)")
}

// labSize is another size of the scenarios than their own.
type labSize struct {
	orders, batch int
	flags         *pflag.FlagSet
}

func (z *labSize) bind(f *pflag.FlagSet) {
	z.flags = f
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "count" {
			name = "orders"
		}
		return pflag.NormalizedName(name)
	})
	f.IntVar(&z.orders, "orders", 0, "number of orders, where the scenario is not about one (also --count; default: the scenario's own)")
	f.IntVar(&z.batch, "batch-size", 0, "messages that an unguarded worker takes at once (default: the scenario's own)")
}

// apply makes the scenarios of that size. Of several those keep their own that cannot be, which is said; one that was named
// alone is an error.
func (z *labSize) apply(a *app, chosen []plan.Scenario) ([]plan.Scenario, error) {
	for flag, n := range map[string]int{"orders": z.orders, "batch-size": z.batch} {
		if z.flags.Changed(flag) && n < 1 {
			return nil, output.Usage("--%s: %d is less than 1", flag, n).WithHint("leave --%s away for the scenario's own", flag)
		}
	}
	out := make([]plan.Scenario, 0, len(chosen))
	for _, s := range chosen {
		sized, dropped, err := s.Resize(z.orders, z.batch)
		bad := (*plan.SizeError)(nil)
		switch {
		case errors.As(err, &bad) && bad.Scenario != "" && len(chosen) > 1:
			a.p.Notef("%s keeps its own number of orders: %s", s.Name, bad.Problem)
			if sized, _, err = s.Resize(0, z.batch); err != nil {
				return nil, err
			}
		case errors.As(err, &bad):
			return nil, output.Usage("%w", err).WithHint("%s", bad.Hint)
		case err != nil:
			return nil, err
		}
		if len(dropped) > 0 {
			a.p.Notef("%s with %d orders: not checked, as they do not follow from their number: %s", s.Name, z.orders, strings.Join(dropped, ", "))
		}
		out = append(out, sized)
	}
	return out, nil
}

// flagsAgain are the flags that make the same sizes again.
func (z *labSize) flagsAgain() (flags string) {
	if z.orders > 0 {
		flags += fmt.Sprintf(" --orders %d", z.orders)
	}
	if z.batch > 0 {
		flags += fmt.Sprintf(" --batch-size %d", z.batch)
	}
	return flags
}

// sizeFlags are the flags for the sizes in which a scenario differs from its definition.
func sizeFlags(s plan.Scenario) string {
	own, ok := scenarios.Find(s.Name)
	if !ok {
		return ""
	}
	var z labSize
	if s.Load.Orders != own.Load.Orders {
		z.orders = s.Load.Orders
	}
	if s.Workers.Prefetch != own.Workers.Prefetch {
		z.batch = s.Workers.Prefetch
	}
	return z.flagsAgain()
}

// barWidth is that of a progress bar, in characters.
const barWidth = 20

// nth puts before each line of progress which scenario of how many it is about, and keeps it in a line of width characters.
func nth(i, n, width int, name string, show func(string)) func(string) {
	head := ""
	if n > 1 {
		full := barWidth * i / n
		head = fmt.Sprintf("[%s%s] %d of %d %s: ", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), i+1, n, name)
	}
	return func(line string) {
		line = head + line
		if utf8.RuneCountInString(line) >= width {
			line = string([]rune(line)[:max(0, width-2)]) + "…"
		}
		show(line)
	}
}
