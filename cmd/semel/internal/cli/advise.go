package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// advised is what advise prints: the settings for programs, the advice with its reasons, and the questions behind it.
type advised struct {
	Settings struct {
		Kind                       ops.QueueKind `json:"kind"`
		VisibilitySeconds          float64       `json:"visibility_seconds"`
		LeaseSeconds               float64       `json:"lease_seconds"`
		HeartbeatSeconds           float64       `json:"heartbeat_seconds"`
		MaxRuntimeSeconds          float64       `json:"max_runtime_seconds"`
		Steps                      bool          `json:"steps"`
		MaxReceiveCount            int           `json:"max_receive_count,omitempty"`
		HorizonSeconds             float64       `json:"horizon_seconds"`
		RetentionSeconds           float64       `json:"retention_seconds"`
		DeadLetterRetentionSeconds float64       `json:"dead_letter_retention_seconds,omitempty"`
		WaitSeconds                float64       `json:"wait_seconds,omitempty"`
		Batch                      int           `json:"batch"`
		GraceSeconds               float64       `json:"grace_seconds"`
	} `json:"settings"`
	Advice    []ops.Advice   `json:"advice"`
	Questions []ops.Question `json:"questions"`
	Command   string         `json:"command"`
}

// adviseFlags are the flags of advise.
type adviseFlags struct {
	ops.Workload

	queue string
	fifo  bool
}

func (a *app) adviseCommand() *cobra.Command {
	f := adviseFlags{Workload: ops.Workload{
		Attempts: semel.DefaultMaxAttempts, Batch: semel.DefaultBatch, Concurrency: semel.DefaultConcurrency,
	}}
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
	fs.StringVar(&f.queue, "queue", string(ops.KindSQS), "kind of the queue (sqs, sqs-fifo, sqlite, postgres, mysql, nats, rabbitmq, kafka, redis, memory, other), or its URL")
	for _, k := range ops.QueueKinds() {
		kinds = append(kinds, string(k))
	}
	fixed(fs, "queue", kinds...)
	config.DurationVar(fs, &f.P99, "p99", "how long 99 of 100 runs take at most")
	config.DurationVar(fs, &f.MaxRuntime, "max-runtime", "hard limit of a run (default: 15m, or the p99 if that is longer)")
	config.DurationVar(fs, &f.Retention, "retention", "how long the queue keeps a message (default: what it is set to, on SQS else 4d)")
	config.DurationVar(fs, &f.Redrive, "redrive", "how long after its failure a message may be sent again (default: for as long as the queue's own dead-letter queue keeps it)")
	config.DurationVar(fs, &f.ProducerRetries, "producer-retries", "how long a producer goes on sending the same thing, as for work (default: no longer than the queue can deliver it again)")
	fs.IntVar(&f.Attempts, "max-attempts", f.Attempts, "failed runs after which a message is a dead letter")
	fs.IntVar(&f.Batch, "batch", f.Batch, "messages of one receive")
	fs.IntVar(&f.Concurrency, "concurrency", f.Concurrency, "handlers that run at once")
	fs.BoolVar(&f.fifo, "fifo", false, "the queue is a FIFO queue of SQS")
	fs.BoolVar(&f.NoHeartbeat, "no-heartbeat", false, "nothing extends the visibility while a run goes on")
	for _, name := range []string{"retention", "max-runtime", "max-attempts", "batch", "concurrency"} {
		_ = fs.SetAnnotation(name, config.Own, []string{"the queue's, or what is asked about"}) // the flag exists
	}
	config.DurationVar(fs, &f.LambdaTimeout, "lambda-timeout", "time limit of the Lambda function that the queue calls")
	config.DurationVar(fs, &f.LambdaWindow, "lambda-window", "its batching window")
	return c
}

func (a *app) advise(ctx context.Context, f adviseFlags) (err error) {
	in := f.Workload
	in.Kind = ops.QueueKind(f.queue)
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
		in.Kind = ops.KindFIFO
	}
	if err := in.Check(); err != nil {
		if e := (*ops.WorkloadError)(nil); errors.As(err, &e) {
			return output.Usage("--%s %s", e.Field, e.Problem).WithHint("%s", e.Hint)
		}
		return err
	}
	d := proposal(in)
	d.Command = command(url, in.Settings(), in)
	return a.p.Object(d, d.text)
}

// liveQueue looks at the queue of a URL.
func liveQueue(ctx context.Context, raw string) (kind ops.QueueKind, live *ops.LiveQueue, err error) {
	set := open.New(open.Options{OneShot: true, MustExist: true, ReadOnly: true})
	defer closing(&err, set)
	q, err := set.Queue(ctx, raw)
	if err != nil {
		return "", nil, err
	}
	kind = ops.KindOther
	for _, k := range ops.QueueKinds() {
		if string(k) == q.Features().Kind {
			kind = k
		}
	}
	if live, err = set.Live(ctx, "queue", raw); err != nil {
		return "", nil, err
	}
	if live != nil && live.FIFO {
		kind = ops.KindFIFO
	}
	return kind, live, nil
}

func proposal(in ops.Workload) advised {
	s := in.Settings()
	d := advised{Advice: in.Advice(), Questions: in.Questions()}
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
func example(k ops.QueueKind, fifo bool) string {
	switch {
	case k == ops.KindFIFO || fifo:
		return "sqs://orders.fifo"
	case k == ops.KindSQS:
		return "sqs://orders"
	case k == ops.KindOther:
		return "URL"
	}
	return open.Example(string(k))
}

// command is the worker that these settings make.
func command(url string, s ops.Settings, in ops.Workload) string {
	if in.LambdaTimeout > 0 {
		return ""
	}
	store := ""
	if s.Kind.SQS() {
		store = " --store 'dynamodb://semel-records'"
	}
	if slices.Contains([]ops.QueueKind{ops.KindNATS, ops.KindRabbitMQ, ops.KindKafka}, s.Kind) {
		store = " --store 'postgres://db.example.org/shop'"
	}
	more := ""
	if in.ProducerRetries > 0 {
		more += " --producer-retries " + words.About(in.ProducerRetries)
	}
	if n := in.Assumed().Attempts; n != semel.DefaultMaxAttempts {
		more += fmt.Sprintf(" --max-attempts %d", n)
	}
	return fmt.Sprintf("semel work --queue '%s'%s --key json:/order_id --visibility %s --max-runtime %s --retention %s%s --batch %d "+
		"--concurrency %d --grace %s --exec './your-handler'", open.Redact(url), store, words.About(s.Visibility), words.About(s.MaxRuntime),
		words.About(s.Retention), more, s.Batch, in.Assumed().Concurrency, words.About(s.Grace))
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
