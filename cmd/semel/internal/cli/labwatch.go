package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/semel-dev/semel/cmd/semel/internal/lab"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/watch"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// freePort is what --watch means without an address.
const freePort = "127.0.0.1:0"

func watchFlag(f *pflag.FlagSet, addr *string) {
	f.StringVar(addr, "watch", "", "serve a live view of one scenario on the loopback interface, with buttons to disturb it; the load goes on "+
		"until it is finished there, or with an interrupt (default address: a free port)")
	f.Lookup("watch").NoOptDefVal = freePort
}

// watchAddress takes the address after --watch out of the names, if it is an argument of its own.
func (o *labRun) watchAddress(names []string) []string {
	if o.watch != freePort {
		return names
	}
	i := slices.IndexFunc(names, func(n string) bool { return strings.Contains(n, ":") })
	if i < 0 {
		return names
	}
	o.watch = names[i]
	return slices.Delete(slices.Clone(names), i, i+1)
}

// labWatch runs a scenario that a person watches. The first interrupt finishes it as the button does: what was sent is
// settled and judged.
func (a *app) labWatch(ctx context.Context, s plan.Scenario, o lab.Options, addr string) (verdict.Verdict, error) {
	guards := o.Guards
	if len(guards) == 0 {
		guards = []plan.Guard{plan.GuardOff, plan.GuardOn}
	}
	server, err := watch.Listen(addr, s, guards)
	if errors.Is(err, watch.ErrAddress) {
		return verdict.Verdict{}, output.Usage("--watch: %v", err).WithHint("--watch alone takes a free port; or give 127.0.0.1:PORT")
	}
	if err != nil {
		return verdict.Verdict{}, err
	}
	defer server.Close(watch.Last{Problem: "it has ended"})
	stop := context.AfterFunc(ctx, server.Finish)
	defer stop()
	if _, err := fmt.Fprintf(a.p.Err, "live view of %s: %s\n", s.Name, server.URL()); err != nil {
		return verdict.Verdict{}, fmt.Errorf("print the address of the live view: %w", err)
	}
	o.Watch = server
	return lab.Run(context.WithoutCancel(ctx), s, o, nil)
}
