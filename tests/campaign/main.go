// Command campaign sends messages, a share of them duplicates, to worker processes of several modes that share one
// record table, while it kills and freezes workers and takes the server down in the ways in which servers go down. Then
// it lets everything recover, and counts effects in a ledger that has no constraint of its own.
//
//	go run ./campaign --messages 200000 --duplicates 0.2 --workers 3 --kills 50 --restarts 10 --seed 1
//
// It starts its own PostgreSQL. One JSON line goes to stdout, words to stderr. Exit codes: 0 every key took effect once
// and every message is settled; 3 it is not so; 1 the campaign itself could not be run; 2 wrong arguments.
//
// --guard off plants the inbox that people write (look, do, mark, ack), --guard first one that marks first: both have to
// be caught.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/semel-dev/semel/tests/internal/crew"
)

// exitNotHeld says that the verdict is against us.
const exitNotHeld = 3

func main() {
	crew.MainIfWorker()
	os.Exit(command(os.Args[1:]))
}

// command is the program without its end: the exit code.
func command(args []string) int {
	c, err := parse(args)
	if err != nil {
		return 2 // parse has said why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c.say = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	r, err := run(ctx, c)
	if err != nil {
		fmt.Fprintf(os.Stderr, "campaign with seed %d: %v\n", c.seed, err)
		return 1
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, "write the result:", err)
		return 1
	}
	fmt.Fprintln(os.Stderr, r.words())
	if !r.Held {
		return exitNotHeld
	}
	return 0
}

// config is what the flags say.
type config struct {
	messages, workers, kills, freezes, restarts, backlog int

	duplicates float64
	seed       uint64
	modes      []crew.Mode
	visibility time.Duration
	timeout    time.Duration

	say func(format string, args ...any)
}

func parse(args []string) (config, error) {
	var c config
	var modes, guard string
	fs := flag.NewFlagSet("campaign", flag.ContinueOnError)
	fs.IntVar(&c.messages, "messages", 200_000, "messages to send, duplicates included")
	fs.Float64Var(&c.duplicates, "duplicates", 0.2, "share of duplicates")
	fs.IntVar(&c.workers, "workers", 3, "worker processes")
	fs.IntVar(&c.kills, "kills", 50, "workers to kill with SIGKILL")
	fs.IntVar(&c.freezes, "freezes", 5, "workers to stop with SIGSTOP for longer than their leases")
	fs.IntVar(&c.restarts, "restarts", 10, "restarts of the server: immediate stops and kills in turn")
	fs.Uint64Var(&c.seed, "seed", 1, "seed of messages and faults")
	fs.StringVar(&modes, "modes", "a2,c,batch", "modes of the workers, in turn: a2 (collected statements), c (open transaction), batch, batch-tx")
	fs.StringVar(&guard, "guard", "on", "off and first plant a naive inbox that marks last or first")
	fs.IntVar(&c.backlog, "backlog", 10_000, "how far the sender may be ahead of the workers")
	fs.DurationVar(&c.visibility, "visibility", 2*time.Second, "how long a worker owns a message without a heartbeat")
	fs.DurationVar(&c.timeout, "timeout", 2*time.Minute, "how long the campaign waits without progress before it gives up")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	for m := range strings.SplitSeq(modes, ",") {
		c.modes = append(c.modes, crew.Mode(m))
	}
	switch guard {
	case "off":
		c.modes = []crew.Mode{crew.MarkLast}
	case "first":
		c.modes = []crew.Mode{crew.MarkFirst}
	}
	return c, c.check(fs, guard)
}

func (c *config) check(fs *flag.FlagSet, guard string) (err error) {
	switch {
	case fs.NArg() > 0:
		err = fmt.Errorf("%q is no flag", fs.Arg(0))
	case c.messages < 1 || c.workers < 1 || c.backlog < 1:
		err = fmt.Errorf("-messages, -workers and -backlog must be at least 1")
	case c.kills < 0 || c.freezes < 0 || c.restarts < 0:
		err = fmt.Errorf("-kills, -freezes and -restarts must not be negative")
	case c.duplicates < 0 || c.duplicates >= 1:
		err = fmt.Errorf("-duplicates is %v, must be from 0 to below 1", c.duplicates)
	case guard != "on" && guard != "off" && guard != "first":
		err = fmt.Errorf("-guard is %q, must be on, off or first", guard)
	}
	for _, m := range c.modes {
		if err == nil && !m.Known() {
			err = fmt.Errorf("-modes has %q, must be of %s", m, crew.Modes)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "campaign:", err)
	}
	return err
}
