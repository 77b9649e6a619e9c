package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/semel-dev/semel/cmd/semel/internal/console"
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
	cfg, err := a.consoleConfig(ctx, set, o)
	if err != nil {
		return err
	}
	c := console.New(cfg)
	defer c.Close()
	s := &top.Source{Queue: cfg.Queue.Features().Name, Workers: workers, Overview: func(ctx context.Context) ([]byte, error) {
		return overview(ctx, c)
	}}
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
			for _, l := range top.Frame(&now, width, height, false) {
				b.WriteString(l + "\n")
			}
		})
	}
	before, err := term.MakeRaw(int(a.stdin.Fd()))
	if err != nil {
		return fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	defer func() { _ = term.Restore(int(a.stdin.Fd()), before) }()
	return top.Live(ctx, s, a.stdin, out, size)
}

// overview is the JSON of the console's first page.
func overview(ctx context.Context, c *console.Console) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/", nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Authorization", "Bearer "+c.Token)
	var w response
	c.Handler().ServeHTTP(&w, r)
	if w.status != http.StatusOK {
		return nil, fmt.Errorf("the console responds %d: %s", w.status, bytes.TrimSpace(w.Bytes()))
	}
	return w.Bytes(), nil
}

// response is what a handler in this process writes.
type response struct {
	bytes.Buffer
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.Buffer.Write(b)
}
