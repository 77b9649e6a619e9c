package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/sqslocal"
	"github.com/semel-dev/semel/cmd/semel/internal/web"
)

type sqsOptions struct {
	listen, allow, queue, account string
	create, fault                 []string
	seed                          uint64
	grace                         time.Duration
}

func (a *app) sqsCommand() *cobra.Command {
	o := sqsOptions{grace: 10 * time.Second}
	c := &cobra.Command{
		Use: "sqs [--listen ADDR] [--queue sqlite:FILE]", Short: "A local Amazon SQS for any program, with faults to switch on", Args: noArgs,
		Long: `sqs serves the common actions of Amazon SQS, with standard and FIFO queues, on this machine. Point any SDK or the aws command
at it: it prints the lines to paste. Any credentials work; signatures are not checked. With --queue sqlite:FILE everything survives
a restart or crash. By default everything is in memory, and lost at the end.

Faults go wrong on purpose. --fault sets them at the start, semel sqs fault while it runs:
  duplicate       a message is delivered once more                       (standard queues)
  disorder        a receive gets messages in no order, or fewer          (standard queues)
  early-visible   the visibility timeout ends at once, or by=… earlier
  late-visible    the visibility timeout ends by=… later (30s)
  dropped-delete  a deletion reports success and is not done
  stale-handle    a receipt handle is refused (ReceiptHandleIsInvalid)
  lost-response   the request is carried out and the connection cut
  torn            the same, in the middle of the response
  cut             the connection is cut and nothing done
  throttle, unavailable, internal   RequestThrottled, HTTP 503, HTTP 500 (done or not)
  partial         entries of a batch fail (done or not)
  delay           the request, or its response, waits by=… (1s)
It listens on the loopback address by default. SIGINT or SIGTERM ends long polls, and exits 0.`,
		Example: `  semel sqs --create orders,dlq=orders-dead:200,visibility=30s
  semel sqs --queue sqlite:sqs.db --create orders,fifo --fault duplicate=0.2 --seed 7
  semel sqs fault lost-response@DeleteMessage=next:3`,
		Annotations: map[string]string{"settings": "places"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return a.sqs(cmd.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:9324", "address and port; port 0 picks a free one")
	allowHostFlag(c, &o.allow)
	f.StringVar(&o.queue, "queue", "memory", "memory, or sqlite:FILE, which keeps everything")
	f.StringVar(&o.account, "account", awstest.Account, "account id in queue URLs and ARNs, 12 digits")
	f.StringArrayVar(&o.create, "create", nil, "queue to create: NAME[,fifo][,dlq=NAME:200][,visibility=5s][,delay=1s] [,retention=1d][,wait=20s] (repeatable)")
	f.StringArrayVar(&o.fault, "fault", nil, "what goes wrong: NAME[@OPERATION]=RATE|next:N[,by=DURATION] (repeatable)")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the faults")
	config.DurationVar(f, &o.grace, "grace", "how long requests in flight may take at the end")
	c.AddCommand(a.sqsFaultCommand())
	return c
}

var accountID = regexp.MustCompile(`^[0-9]{12}$`)

// sqs runs the endpoint until ctx ends.
func (a *app) sqs(ctx context.Context, o sqsOptions) (err error) {
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return output.Usage("--listen %q: %w", o.listen, err).WithHint("--listen 127.0.0.1:9324")
	}
	if !accountID.MatchString(o.account) {
		return output.Usage("--account %q is no account id", o.account).WithHint("--account %s, 12 digits", awstest.Account)
	}
	so := sqslocal.Options{Region: a.region, Account: o.account, Faults: sqslocal.NewFaults(o.seed), Hosts: web.NewHosts(o.listen, o.allow)}
	if so.Region == "" {
		so.Region = awstest.Region
	}
	faults, err := sqslocal.ParseFaults(o.fault)
	if err == nil {
		err = so.Faults.Apply(sqslocal.Change{Faults: faults})
	}
	var queues []sqslocal.NewQueue
	for _, text := range o.create {
		q, perr := sqslocal.ParseQueue(text)
		err = errors.Join(err, perr)
		queues = append(queues, q)
	}
	if err != nil {
		return err
	}
	l, err := web.Listen(ctx, o.listen)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	file, err := a.sqsFile(ctx, o.queue)
	if err != nil {
		return err
	}
	var taken <-chan struct{}
	if file != nil {
		defer closing(&err, file)
		so.Keeper, taken = file, file.Taken()
	}
	s, err := sqsServer(so, queues)
	if err != nil {
		if file != nil { // a server that has it goes on
			err = errors.Join(err, file.Release())
		}
		return err
	}
	if !loopback(host) {
		a.log.Warn("whoever can reach this address may read and send messages: credentials are not checked", "listen", o.listen)
	}
	if err := a.tellSQS(l, so, s.Queues()); err != nil {
		return err
	}
	return a.serveSQS(ctx, l, s, taken, o.grace)
}

// sqsServer makes the server and the queues to begin with.
func sqsServer(o sqslocal.Options, queues []sqslocal.NewQueue) (*sqslocal.Server, error) {
	s, err := sqslocal.New(o)
	if err != nil {
		return nil, fmt.Errorf("--queue: %w", err)
	}
	for _, q := range queues {
		if err := s.Create(q); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// sqsFile opens what keeps the queues, nil for memory.
func (a *app) sqsFile(ctx context.Context, raw string) (*sqslocal.File, error) {
	if raw == "memory" || raw == "memory://" {
		return nil, nil
	}
	t, err := open.Parse("queue", raw)
	if err != nil {
		return nil, err
	}
	if t.Scheme != "sqlite" || t.Queue != "" {
		return nil, output.Usage("--queue %q: semel sqs keeps its queues in memory or in an SQLite file", open.Redact(raw)).
			WithHint("--queue sqlite:sqs.db, without ?queue=: its queues have their names from their clients")
	}
	db, err := open.SQLite(ctx, t)
	if err != nil {
		return nil, err
	}
	f, err := sqslocal.NewFile(ctx, db, a.log)
	if err != nil {
		return nil, output.Unreachable("--queue %s: %w", t.Shown, err)
	}
	return f, nil
}

// tellSQS prints where it listens, and on stderr what to paste into a shell.
func (a *app) tellSQS(l net.Listener, o sqslocal.Options, names []string) error {
	endpoint := "http://" + l.Addr().String()
	if at, ok := l.Addr().(*net.TCPAddr); ok && at.IP.IsUnspecified() {
		endpoint = fmt.Sprintf("http://127.0.0.1:%d", at.Port)
	}
	queues := map[string]string{}
	for _, n := range names {
		queues[n] = endpoint + "/" + o.Account + "/" + n
	}
	env := [][2]string{
		{"AWS_ENDPOINT_URL_SQS", endpoint},
		{"AWS_ACCESS_KEY_ID", "local"},
		{"AWS_SECRET_ACCESS_KEY", "local"},
		{"AWS_REGION", o.Region},
		{"AWS_DEFAULT_REGION", o.Region},
	}
	var paste strings.Builder
	paste.WriteString("export")
	set := map[string]string{}
	for _, e := range env {
		set[e[0]] = e[1]
		_, _ = fmt.Fprintf(&paste, " %s=%s", e[0], e[1])
	}
	a.p.Notef("%s", paste.String())
	for _, n := range names {
		a.p.Notef("%s", queues[n])
	}
	return a.p.Line(map[string]any{"listening": endpoint, "queues": queues, "environment": set},
		"listening on %s", endpoint)
}

// serveSQS serves until ctx ends or another server takes the file.
func (a *app) serveSQS(ctx context.Context, l net.Listener, s *sqslocal.Server, taken <-chan struct{}, grace time.Duration) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-taken:
			stop(sqslocal.ErrTaken)
		case <-ctx.Done():
		}
	}()
	err := a.serveHTTP(ctx, l, s, grace, s.Stop)
	if errors.Is(context.Cause(ctx), sqslocal.ErrTaken) {
		return output.Failed("%w", sqslocal.ErrTaken).WithHint("one server a file: send everything to the newer one")
	}
	return errors.Join(err, s.Close())
}

type sqsFaultOptions struct {
	endpoint string
	seed     uint64
	seeded   bool
	clear    bool
}

func (a *app) sqsFaultCommand() *cobra.Command {
	var o sqsFaultOptions
	c := &cobra.Command{
		Use: "fault [NAME=RATE|next:N|off …] [--endpoint URL]", Short: "Set or show the faults of a running semel sqs",
		Long: `fault sets the named faults and leaves the others. Without a name it shows what is set, how many chances each fault had, and
how many it took. NAME@DeleteMessage=… limits a fault to one operation (+ joins several); by=2s is the time of delay, early-visible
and late-visible. semel sqs --help describes each fault. PUT, GET and DELETE of /_semel/faults do the same.`,
		Example: `  semel sqs fault duplicate=0.5 lost-response=next:3
  semel sqs fault delay@ReceiveMessage+SendMessage=0.1,by=2s --endpoint http://127.0.0.1:9324
  semel sqs fault --clear`,
		ValidArgsFunction: oneOf(func() []string {
			names := sqslocal.Names()
			for i := range names {
				names[i] += "="
			}
			return names
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.seeded = cmd.Flags().Changed("seed")
			return a.sqsFault(cmd.Context(), o, args)
		},
	}
	at := os.Getenv("AWS_ENDPOINT_URL_SQS")
	if at == "" {
		at = "http://127.0.0.1:9324"
	}
	f := c.Flags()
	f.StringVar(&o.endpoint, "endpoint", at, "where semel sqs listens (default: AWS_ENDPOINT_URL_SQS, else http://127.0.0.1:9324)")
	f.Uint64Var(&o.seed, "seed", 0, "new seed of the faults; resets the chances")
	f.BoolVar(&o.clear, "clear", false, "remove all faults first")
	return c
}

func (a *app) sqsFault(ctx context.Context, o sqsFaultOptions, args []string) error {
	u, err := url.Parse(o.endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return output.Usage("--endpoint %q is no URL of a server", open.Redact(o.endpoint)).WithHint("--endpoint http://127.0.0.1:9324")
	}
	target := u.Scheme + "://" + u.Host + sqslocal.FaultsPath
	faults, err := sqslocal.ParseFaults(args)
	if err != nil {
		return err
	}
	change := sqslocal.Change{Faults: faults}
	if o.seeded {
		change.Seed = &o.seed
	}
	var state sqslocal.State
	if o.clear {
		if err := ask(ctx, http.MethodDelete, target, nil, &state); err != nil {
			return err
		}
	}
	switch {
	case len(args) > 0 || o.seeded:
		state = sqslocal.State{} // decoding adds to maps that are there
		err = ask(ctx, http.MethodPut, target, change, &state)
	case !o.clear:
		err = ask(ctx, http.MethodGet, target, nil, &state)
	}
	if err != nil {
		return err
	}
	return a.p.Object(state, func(b *strings.Builder) { tellFaults(b, state) })
}

// tellFaults prints faults as they are given on the command line, and their counts.
func tellFaults(b *strings.Builder, s sqslocal.State) {
	names := slices.Collect(maps.Keys(s.Faults))
	for name := range s.Counts {
		if _, ok := s.Faults[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		fmt.Fprintf(b, "no faults (seed %d)\n", s.Seed)
		return
	}
	for _, name := range names {
		c := s.Counts[name]
		fmt.Fprintf(b, "%-40s hit %d of %d\n", sqslocal.Text(name, s.Faults[name]), c.Hits, c.Chances)
	}
	fmt.Fprintf(b, "seed %d\n", s.Seed)
}

// ask speaks to a semel sqs. What it refuses is a usage error with its hint.
func ask(ctx context.Context, method, target string, send, into any) error {
	var body io.Reader
	if send != nil {
		b, err := json.Marshal(send)
		if err != nil {
			return fmt.Errorf("write the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return output.Usage("--endpoint: %w", err)
	}
	c := http.Client{Timeout: 10 * time.Second}
	got, err := c.Do(r)
	if err != nil {
		return output.Unreachable("%w", err).WithHint("is semel sqs running there? --endpoint http://127.0.0.1:9324")
	}
	defer func() { _ = got.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(got.Body, 1<<20))
	if err != nil {
		return output.Unreachable("read the response of %s: %w", target, err)
	}
	var refused struct {
		Error struct{ Message, Hint string }
	}
	switch {
	case got.StatusCode == http.StatusOK && json.Unmarshal(b, into) == nil:
		return nil
	case got.StatusCode == http.StatusBadRequest && json.Unmarshal(b, &refused) == nil && refused.Error.Message != "":
		e := output.Usage("%s", refused.Error.Message)
		e.Hint = refused.Error.Hint
		return e
	}
	return output.Unreachable("%s responds %s: it is no semel sqs", strings.TrimSuffix(target, sqslocal.FaultsPath), got.Status).
		WithHint("--endpoint http://127.0.0.1:9324, where semel sqs listens")
}
