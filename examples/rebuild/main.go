// Command rebuild keeps a table of account balances that follows from a stream of events, and rebuilds it under another
// name while the old one serves. README.md explains it; main_test.go kills it in the middle.
//
//	rebuild -db bank.db seed 2000           a stream of 2,000 events
//	rebuild -db bank.db replay accounts_v1  the whole stream, into table accounts_v1; again: the same, and nothing runs twice
//	rebuild -db bank.db replay accounts_v2  a rebuild: another consumer, another table, from zero
//	rebuild -db bank.db switch accounts_v2  the view accounts shows accounts_v2 from now on
//	rebuild -db bank.db show accounts       what a table or the view holds
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/semel-dev/semel/adapters/sqlite"
)

var errUsage = errors.New("usage: rebuild -db FILE (seed N | replay TABLE | switch TABLE | show TABLE)")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "rebuild:", err)
	if errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("rebuild", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	path := flags.String("db", "bank.db", "the SQLite file of stream, tables and records")
	if err := flags.Parse(args); err != nil || flags.NArg() != 2 {
		return errors.Join(errUsage, err)
	}
	db, err := sqlite.Open(ctx, *path, sqlite.Options{Create: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	what := flags.Arg(1)
	switch flags.Arg(0) {
	case "seed":
		n, err := strconv.Atoi(what)
		if err != nil || n < 1 {
			return fmt.Errorf("%w: %q is no number of events", errUsage, what)
		}
		return appendEvents(ctx, db.SQL(), makeEvents(n, 1))
	case "replay":
		p, err := openProjection(ctx, db, what)
		if err != nil {
			return err
		}
		sum, err := p.replay(ctx)
		fmt.Fprintf(out, "%s: %d events applied, %d were there already\n", what, sum.Effects, sum.Replayed)
		return err
	case "switch":
		return switchTo(ctx, db, what)
	case "show":
		text, err := state(ctx, db, what)
		fmt.Fprint(out, text)
		return err
	}
	return errUsage
}
