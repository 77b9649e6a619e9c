package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/advice"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// advised is what advise prints: the settings for programs, the advice with its reasons, and the questions behind it.
type advised struct {
	Settings struct {
		Kind                       advice.Kind `json:"kind"`
		VisibilitySeconds          float64     `json:"visibility_seconds"`
		LeaseSeconds               float64     `json:"lease_seconds"`
		HeartbeatSeconds           float64     `json:"heartbeat_seconds"`
		MaxRuntimeSeconds          float64     `json:"max_runtime_seconds"`
		Steps                      bool        `json:"steps"`
		MaxReceiveCount            int         `json:"max_receive_count,omitempty"`
		HorizonSeconds             float64     `json:"horizon_seconds"`
		RetentionSeconds           float64     `json:"retention_seconds"`
		DeadLetterRetentionSeconds float64     `json:"dead_letter_retention_seconds,omitempty"`
		WaitSeconds                float64     `json:"wait_seconds,omitempty"`
		Batch                      int         `json:"batch"`
		GraceSeconds               float64     `json:"grace_seconds"`
	} `json:"settings"`
	Advice    []advice.Item     `json:"advice"`
	Questions []advice.Question `json:"questions"`
	Command   string            `json:"command"`
}

// adviseFlags are the flags of advise.
type adviseFlags struct {
	queue                                                  string
	p99, maxRuntime, retention, redrive, producers, lambda config.Duration
	window                                                 config.Duration
	attempts, batch, concurrency                           int
	fifo, noHeartbeat                                      bool
}

func (a *app) adviseCommand() *cobra.Command {
	f := adviseFlags{
		attempts: semel.DefaultMaxAttempts, batch: semel.DefaultBatch, concurrency: semel.DefaultConcurrency,
	}
	c := &cobra.Command{
		Use:   "advise [--p99 D] [--max-runtime D] …",
		Short: "Compute visibility, heartbeat, retention and redrive limit, each with its reason",
		Long: `advise computes settings of a queue and a worker for work of a given duration, with reasons. It changes nothing. With the URL of a
queue it compares them with the queue's settings. semel doctor judges settings; advise proposes them. Both compute the retention of
records as the worker does.`,
		Example: `  semel advise --p99 8s --max-runtime 15m
  semel advise --queue 'sqs://orders?region=eu-west-1' --p99 40s --redrive 30d
  semel advise --lambda-timeout 30s --lambda-window 5s -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.advise(cmd.Context(), f) },
	}
	fs := c.Flags()
	var kinds []string
	fs.StringVar(&f.queue, "queue", string(advice.Standard), "kind of the queue (sqs, sqs-fifo, sqlite, postgres, nats, kafka, memory, other), or its URL")
	for _, k := range advice.Kinds() {
		kinds = append(kinds, string(k))
	}
	fixed(fs, "queue", kinds...)
	fs.Var(&f.p99, "p99", "how long 99 of 100 runs take at most")
	fs.Var(&f.maxRuntime, "max-runtime", "hard limit of a run (default: 15m, or the p99 if that is longer)")
	fs.Var(&f.retention, "retention", "how long the queue keeps a message (default: what it is set to, on SQS else 4d)")
	fs.Var(&f.redrive, "redrive", "how long after its failure a message may be sent again (default: for as long as the queue's own dead-letter queue keeps it)")
	fs.Var(&f.producers, "producer-retries", "how long a producer goes on sending the same thing, as for work (default: no longer than the queue can deliver it again)")
	fs.IntVar(&f.attempts, "max-attempts", f.attempts, "failed runs after which a message is a dead letter")
	fs.IntVar(&f.batch, "batch", f.batch, "messages of one receive")
	fs.IntVar(&f.batch, "prefetch", f.batch, "the same as --batch")
	fs.IntVar(&f.concurrency, "concurrency", f.concurrency, "handlers that run at once")
	fs.BoolVar(&f.fifo, "fifo", false, "the queue is a FIFO queue of SQS")
	fs.BoolVar(&f.noHeartbeat, "no-heartbeat", false, "nothing extends the visibility while a run goes on")
	for _, name := range []string{"retention", "max-runtime", "max-attempts", "batch", "concurrency"} {
		_ = fs.SetAnnotation(name, config.Own, []string{"the queue's, or what is asked about"}) // the flag exists
	}
	fs.Var(&f.lambda, "lambda-timeout", "time limit of the Lambda function that the queue calls")
	fs.Var(&f.window, "lambda-window", "its batching window")
	return c
}

func (a *app) advise(ctx context.Context, f adviseFlags) (err error) {
	in := advice.Input{
		Kind: advice.Kind(f.queue), P99: time.Duration(f.p99), MaxRuntime: time.Duration(f.maxRuntime),
		Retention: time.Duration(f.retention), Redrive: time.Duration(f.redrive), ProducerRetries: time.Duration(f.producers),
		Attempts: f.attempts, Batch: f.batch, Concurrency: f.concurrency, NoHeartbeat: f.noHeartbeat,
		LambdaTimeout: time.Duration(f.lambda), LambdaWindow: time.Duration(f.window),
	}
	url := f.queue
	if strings.Contains(f.queue, ":") {
		if in.Kind, in.Live, err = liveQueue(ctx, f.queue); err != nil {
			return err
		}
	} else {
		url = example(in.Kind, f.fifo)
	}
	if f.fifo {
		if !in.Kind.SQS() {
			return output.Usage("--fifo is about queues of SQS, and --queue is %s", f.queue).WithHint("--queue sqs --fifo")
		}
		in.Kind = advice.FIFO
	}
	if err := in.Check(); err != nil {
		if e := (*advice.InputError)(nil); errors.As(err, &e) {
			return output.Usage("--%s %s", e.Field, e.Problem).WithHint("%s", e.Hint)
		}
		return err
	}
	d := proposal(in)
	d.Command = command(url, advice.Compute(in), in)
	return a.p.Object(d, d.text)
}

// liveQueue looks at the queue of a URL.
func liveQueue(ctx context.Context, raw string) (kind advice.Kind, live *advice.Live, err error) {
	set := open.New(open.Options{OneShot: true, MustExist: true, ReadOnly: true})
	defer closing(&err, set)
	q, err := set.Queue(ctx, raw)
	if err != nil {
		return "", nil, err
	}
	kind = advice.Other
	for _, k := range advice.Kinds() {
		if string(k) == q.Features().Kind {
			kind = k
		}
	}
	if live, err = set.Live(ctx, "queue", raw); err != nil {
		return "", nil, err
	}
	if live != nil && live.FIFO {
		kind = advice.FIFO
	}
	return kind, live, nil
}

func proposal(in advice.Input) advised {
	s := advice.Compute(in)
	d := advised{Advice: advice.Items(in), Questions: advice.Questions(in)}
	d.Settings.Kind = s.Kind
	d.Settings.VisibilitySeconds, d.Settings.LeaseSeconds = s.Visibility.Seconds(), s.Lease.Seconds()
	d.Settings.HeartbeatSeconds, d.Settings.MaxRuntimeSeconds = s.Heartbeat.Seconds(), s.MaxRuntime.Seconds()
	d.Settings.Steps, d.Settings.MaxReceiveCount = s.Steps, s.MaxReceives
	d.Settings.HorizonSeconds, d.Settings.RetentionSeconds = s.Horizon.Seconds(), s.Retention.Seconds()
	d.Settings.DeadLetterRetentionSeconds, d.Settings.WaitSeconds = s.DeadLetterRetention.Seconds(), s.Wait.Seconds()
	d.Settings.Batch, d.Settings.GraceSeconds = s.Batch, s.Grace.Seconds()
	return d
}

// example is a URL of the kind, for the command that is proposed.
func example(k advice.Kind, fifo bool) string {
	switch k {
	case advice.Standard:
		if fifo {
			return "sqs://orders.fifo"
		}
		return "sqs://orders"
	case advice.FIFO:
		return "sqs://orders.fifo"
	case advice.SQLite:
		return "sqlite:orders.db?queue=orders"
	case advice.Postgres:
		return "postgres://db.example.org/shop?queue=orders"
	case advice.NATS:
		return "nats://nats.example.org:4222?queue=ORDERS"
	case advice.Kafka:
		return "kafka://kafka.example.org:9092?queue=orders"
	case advice.Memory:
		return "memory://?queue=orders"
	case advice.Other:
	}
	return "URL"
}

// command is the worker that these settings make.
func command(url string, s advice.Settings, in advice.Input) string {
	if in.LambdaTimeout > 0 {
		return ""
	}
	store := ""
	if s.Kind.SQS() {
		store = " --store 'dynamodb://semel-records'"
	}
	if s.Kind == advice.NATS || s.Kind == advice.Kafka {
		store = " --store 'postgres://db.example.org/shop'"
	}
	more := ""
	if in.ProducerRetries > 0 {
		more += " --producer-retries " + advice.Text(in.ProducerRetries)
	}
	if n := in.Assumed().Attempts; n != semel.DefaultMaxAttempts {
		more += fmt.Sprintf(" --max-attempts %d", n)
	}
	return fmt.Sprintf("semel work --queue '%s'%s --key json:/order_id --visibility %s --max-runtime %s --retention %s%s --batch %d "+
		"--concurrency %d --grace %s --exec './your-handler'", open.Redact(url), store, advice.Text(s.Visibility), advice.Text(s.MaxRuntime),
		advice.Text(s.Retention), more, s.Batch, in.Assumed().Concurrency, advice.Text(s.Grace))
}

func (d advised) text(b *strings.Builder) {
	for _, it := range d.Advice {
		fmt.Fprintf(b, "%-8s %-20s %s", it.Level, it.Name, it.Value)
		if it.Have != "" {
			fmt.Fprintf(b, " (now: %s)", it.Have)
		}
		fmt.Fprintf(b, "\n         %s\n         because: %s\n", it.Question, it.Why)
		if it.Set != "" {
			fmt.Fprintf(b, "         set: %s\n", it.Set)
		}
		fmt.Fprintf(b, "         source: %s\n", it.Source)
	}
	b.WriteString("\nThe questions behind it\n")
	for i, q := range d.Questions {
		fmt.Fprintf(b, "\n%d. %s\n   %s.\n", i+1, q.Question, q.Reply)
		for _, c := range q.Cases {
			fmt.Fprintf(b, "   - %s: %s\n", c.When, c.Then)
		}
	}
	if d.Command != "" {
		fmt.Fprintf(b, "\n%s\n", d.Command)
	}
}
