package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/top"
)

func (a *app) topCommand() *cobra.Command {
	o := &consoleOptions{listen: "localhost:0"}
	var workers []string
	var once bool
	c := &cobra.Command{
		Use: "top --queue URL [--worker HOST:PORT]", Short: "Live view in a terminal: what needs a person, queue, workers", Args: noArgs,
		Long: `top shows the first page of semel console in a terminal: what needs a person, what the queue holds, dead letters by group. With
--worker it also shows the consumers of these workers, what they run, and duplicates by cause, from the metrics of their --listen.
q ends it, space pauses it. It changes nothing.`,
		Example: `  semel top --queue 'sqlite:shop.db?queue=orders' --worker 10.0.0.7:9464 --worker 10.0.0.8:9464
  semel top --queue 'sqlite:shop.db?queue=orders' --once`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.top(cmd.Context(), o, workers, once) },
	}
	f := c.Flags()
	f.StringVar(&o.queue, "queue", "", "URL of the queue")
	f.StringVar(&o.store, "store", "", "URL of the record store (default: the queue's)")
	f.StringVar(&o.consumer, "consumer", "", "scope of the keys (default: the queue's name)")
	f.StringArrayVar(&workers, "worker", nil, "address of a worker's --listen; may be repeated")
	f.BoolVar(&once, "once", false, "print one frame, of 80 columns unless stdout is a terminal; -o json prints its figures")
	return c
}

func (a *app) top(ctx context.Context, o *consoleOptions, workers []string, once bool) (err error) {
	out := output.File(a.p.Out)
	if !once && (!output.Terminal(out) || !output.Terminal(a.stdin)) {
		return output.Usage("stdin or stdout is no terminal").WithHint("--once prints one frame")
	}
	set := open.New(open.Options{MustExist: true, ReadOnly: true})
	defer closing(&err, set)
	c, err := a.openConsole(ctx, set, o)
	if err != nil {
		return err
	}
	defer c.Close()
	s := &top.Source{Queue: c.Queue(), Workers: workers, Overview: c.Overview}
	size := func() (int, int) {
		if w, h, err := term.GetSize(int(out.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
		return 80, 24
	}
	if once {
		now := s.Look(ctx)
		width, height := 80, 24
		if output.Terminal(out) {
			width, height = size()
		}
		return a.p.Object(now, func(b *strings.Builder) {
			lines := top.Frame(&now, width, height, false)
			lines = lines[:len(lines)-1] // without the keys: nothing reads them
			b.WriteString(strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n")
		})
	}
	before, err := term.MakeRaw(int(a.stdin.Fd()))
	if err != nil {
		return fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	defer func() { _ = term.Restore(int(a.stdin.Fd()), before) }()
	return top.Live(ctx, s, a.stdin, out, size)
}
