package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/sandbox"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/simulate"
)

// labUp are the flags of `semel lab up`.
type labUp struct {
	dir, addr, env, outputs string
	where                   place.Where
	visibility              config.Duration
	worker, foreground      bool
	knobs                   simulate.Knobs
}

func (a *app) labUpCommand() *cobra.Command {
	o := labUp{visibility: config.Duration(5 * time.Second), knobs: simulate.Default()}
	c := &cobra.Command{
		Use: "up", Short: "Set up a small system: POST /enqueue, queue, worker and store in one process", Args: noArgs,
		Long: `up starts one process in the background with POST /enqueue, a queue with a visibility timeout of 5 s, a worker with a
simulated handler (it works for as many seconds as a message's "sleep" says) and a store, and returns when it is ready.
semel lab down ends it and removes all it made. Its state, its log and the ledger of its effects are in --dir.

--env FILE writes the settings of workers on SQS (QUEUE_URL, DLQ_ARN, AWS_REGION, MESSAGE_STATUS_TABLE,
MESSAGE_COMPLETED_TABLE) for a shell to source. They are on AWS, so that --env alone means --on aws: fakes of SQS and
DynamoDB on the loopback interface.`,
		Example: `  semel lab up --outputs cdk-outputs.json
  API=$(jq -r '.VisibilityDupStack.ApiEndpoint' cdk-outputs.json)
  curl -X POST "${API}enqueue" -H "Content-Type: application/json" -d '{"id":"msg-1","sleep":8}'
  semel lab up --env .env --worker=false && source .env && semel work --simulate --until-empty
  semel lab down`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.labUp(cmd.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.dir, "dir", sandbox.DefaultDir, "folder of the state, the log and the default's database")
	f.StringVar(&o.addr, "addr", "127.0.0.1:8080", "address and port of HTTP; port 0 picks a free one")
	f.StringVar(&o.env, "env", "", "write the settings of a worker to this file")
	f.StringVar(&o.outputs, "outputs", "", "write the endpoint to this file, as cdk deploy --outputs-file does")
	whereFlags(f, &o.where)
	f.Var(&o.visibility, "visibility", "visibility timeout of the queue")
	f.BoolVar(&o.worker, "worker", true, "a worker consumes the queue; false leaves the messages to yours")
	f.Var(&o.knobs, "simulate", "knobs of the worker's handler (docs/worker.md)")
	f.BoolVar(&o.foreground, "foreground", false, "stay in the foreground until SIGINT, SIGTERM or semel lab down")
	return c
}

// check refuses what cannot be before anything is made.
func (o *labUp) check() error {
	if _, port, err := net.SplitHostPort(o.addr); err != nil {
		return output.Usage("--addr %q: %w", o.addr, err).WithHint("--addr 127.0.0.1:8080")
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return output.Usage("--addr %q: port %q is no number from 0 to 65535", o.addr, port).WithHint("--addr 127.0.0.1:8080")
	}
	if d := time.Duration(o.visibility); d < time.Second || d > 12*time.Hour || d%time.Second != 0 {
		return output.Usage("--visibility %s: want whole seconds from 1s to 12h", o.visibility.String()).WithHint("--visibility 5s")
	}
	if !o.knobs.On {
		return output.Usage("--simulate off: the worker has no other handler").WithHint("--worker=false")
	}
	if err := o.knobs.Check(); err != nil {
		return output.Usage("--simulate: %w", err).WithHint("docs/worker.md lists the knobs")
	}
	if o.knobs.Says(simulate.Ledger) || o.knobs.CrashRate > 0 || o.knobs.CrashAfterReceive || o.knobs.CrashAfterSideEffect {
		return output.Usage("--simulate: the worker is in one process with the queue: it cannot crash, and has a ledger of its own").
			WithHint("--worker=false, and semel work --simulate=… for workers that crash")
	}
	if o.env != "" && o.where == (place.Where{}) {
		o.where.On = place.AWS
	}
	return o.where.Check()
}

func (a *app) labUp(ctx context.Context, o labUp) error {
	if err := o.check(); err != nil {
		return err
	}
	var files []sandbox.Wanted
	if o.env != "" {
		files = append(files, sandbox.Wanted{Path: o.env, Env: true})
	}
	if o.outputs != "" {
		files = append(files, sandbox.Wanted{Path: o.outputs})
	}
	state, err := sandbox.Prepare(ctx, o.dir, files, func(text string) { a.log.Warn(text) })
	if err != nil {
		return err
	}
	spec := sandbox.Spec{
		State: state, Addr: o.addr, Where: o.where, Visibility: time.Duration(o.visibility), Worker: o.worker, Knobs: o.knobs, Files: files,
		Seed: 1,
	}
	if host, _, _ := net.SplitHostPort(o.addr); !loopback(host) {
		a.log.Warn("whoever can reach this address may send messages: there is no password", "addr", o.addr)
	}
	if o.foreground {
		removed, err := sandbox.Serve(ctx, spec, a.log, func(s sandbox.State) error { return a.labIsUp(s, o) })
		if err != nil {
			return err
		}
		return a.labRemoved(removed)
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the own program: %w", err)
	}
	if state, err = sandbox.Up(ctx, spec, []string{exe, sandbox.HiddenCommand}); err != nil {
		return err
	}
	return a.labIsUp(state, o)
}

// labStands is what is up, for programs.
type labStands struct {
	Endpoint string            `json:"endpoint"`
	PID      int               `json:"pid"`
	Dir      string            `json:"dir"`
	Log      string            `json:"log,omitempty"`
	Effects  string            `json:"effects,omitempty"`
	Queue    string            `json:"queue"`
	Store    string            `json:"store"`
	Vars     map[string]string `json:"variables,omitempty"`
}

// labIsUp prints where everything is.
func (a *app) labIsUp(s sandbox.State, o labUp) error {
	shown := s.URLs.Shown()
	up := labStands{Endpoint: s.Endpoint, PID: s.PID, Dir: s.Dir, Queue: shown.Queue, Store: shown.Store}
	if !o.foreground {
		up.Log = s.LogPath()
	}
	if o.worker {
		up.Effects = s.EffectsPath()
	}
	return a.p.Object(up, func(b *strings.Builder) {
		fmt.Fprintf(b, "up       %senqueue (process %d)\nqueue    %s, visibility %s\nstore    %s\n", s.Endpoint, s.PID, shown.Queue,
			o.visibility.String(), shown.Store)
		if o.worker {
			fmt.Fprintf(b, "effects  %s\n", up.Effects)
		} else {
			b.WriteString("worker   none: the messages wait for yours\n")
		}
		if up.Log != "" {
			fmt.Fprintf(b, "log      %s\n", up.Log)
		}
		for _, f := range s.Files {
			fmt.Fprintf(b, "wrote    %s\n", f.Path)
		}
		fmt.Fprintf(b, "try      curl -d '{\"id\":\"msg-1\",\"sleep\":8}' %senqueue\n", s.Endpoint)
	})
}

func (a *app) labDownCommand() *cobra.Command {
	dir, dry := "", false
	c := &cobra.Command{
		Use: "down", Short: "Take down what semel lab up set up, and list what was removed", Args: noArgs,
		Long: `down ends the process of semel lab up, removes what it made, and prints the list: process, port, queue, tables, files.
It asks the process by a token that is in the folder alone, and ends none by its number. What a process left that was
killed is removed as well. Exit status 3 where nothing is up.`,
		Example: "  semel lab down\n  semel lab down --dry-run -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			removed, err := sandbox.Down(cmd.Context(), dir, dry)
			if errors.Is(err, sandbox.ErrNotUp) {
				return output.NotFound("nothing is up in %s", dir).WithHint("--dir, if semel lab up had one")
			}
			if err != nil {
				return err
			}
			if dry {
				return a.labItems(removed, "would remove")
			}
			return a.labRemoved(removed)
		},
	}
	c.Flags().StringVar(&dir, "dir", sandbox.DefaultDir, "folder of the state")
	c.Flags().BoolVar(&dry, "dry-run", false, "list what would be removed")
	return c
}

func (a *app) labRemoved(items []sandbox.Item) error { return a.labItems(items, "removed") }

// labItems prints what is gone, and why something is not.
func (a *app) labItems(items []sandbox.Item, verb string) error {
	if a.p.Format != output.Text {
		return output.List(a.p, items, nil, nil)
	}
	for _, it := range items {
		line := fmt.Sprintf("%-8s %-8s %s\n", verb, it.What, it.Name)
		if it.Kept != "" {
			line = fmt.Sprintf("%-8s %-8s %s: %s\n", "left", it.What, it.Name, it.Kept)
		}
		if _, err := io.WriteString(a.p.Out, line); err != nil {
			return err
		}
	}
	return nil
}
