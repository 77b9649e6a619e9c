package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/source"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/wait"
	"github.com/semel-dev/semel/internal/words"
)

// sendBytes bounds the bodies of one batch.
const sendBytes = 16 << 20

type sendOptions struct {
	queue     string
	envelope  bool
	synthetic source.Synthetic
	rate      float64
	batch     int
	headers   []string
	group     string
	delay     time.Duration
	schema    bool
}

func (a *app) sendCommand() *cobra.Command {
	var o sendOptions
	c := &cobra.Command{
		Use:   "send --queue URL [FILE | - | --n N]",
		Short: "Send messages: lines of a file, envelopes, or made-up ones",
		Long: `send makes one message of each line. The line is the body, byte for byte. With --envelope each line is a JSON
object {id, group, headers, delay_ms, body | body_base64}. With --n it makes up messages: {"id":"<uuid>","work":1…1000},
each with its id in the header idempotency-key. Messages without an id get a UUIDv7. --queue-url is another name of --queue.`,
		Example: `  semel send --queue 'sqlite:shop.db?queue=orders' orders.jsonl
  echo '{"order_id":7}' | semel send --queue sqlite:shop.db --header idempotency-key=order-7
  semel send --queue 'sqlite:shop.db?queue=orders' --n 1000 --rate 200 --duplicate-rate 0.3
  semel send --queue-url "$QUEUE_URL" --region us-west-1 --n 25 --rate 5`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return output.Usage("send takes one file, got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.schema {
				return a.printSchema(cmd, args)
			}
			if !cmd.Flags().Changed("seed") && o.synthetic.Seed == 0 {
				o.synthetic.Seed = rand.Uint64N(1 << 53) // fits a JSON number
			}
			return a.send(cmd, o, args)
		},
	}
	f := c.Flags()
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "queue-url" {
			name = "queue"
		}
		return pflag.NormalizedName(name)
	})
	f.StringVar(&o.queue, "queue", "", "URL of the queue")
	f.BoolVar(&o.envelope, "envelope", false, "each line is a JSON envelope")
	f.StringArrayVar(&o.headers, "header", nil, "NAME=VALUE for every message (may be repeated)")
	f.StringVar(&o.group, "group", "", "ordered group of every message")
	config.DurationVar(f, &o.delay, "delay", "not deliverable before this")
	f.IntVar(&o.synthetic.N, "n", 0, "make up N messages")
	f.Float64Var(&o.rate, "rate", 0, "messages per second (0: as fast as possible)")
	f.IntVar(&o.batch, "batch-size", 100, "messages of one call (SQS: 10 at most, and by default)")
	f.IntVar(&o.synthetic.PoisonCount, "poison-count", 0, `N messages carry "poison":true, at random places`)
	f.IntVar(&o.synthetic.PoisonEvery, "poison-every", 0, "every Nth message carries \"poison\":true (overrides --poison-count)")
	f.Float64Var(&o.synthetic.Duplicates, "duplicate-rate", 0, "this share of the messages (0 to 1) is sent twice")
	f.BoolVar(&o.synthetic.SameKey, "same-key", false, "all are one message, sent --n times")
	f.Uint64Var(&o.synthetic.Seed, "seed", 0, "makes the same messages again (default: drawn, and printed)")
	f.BoolVar(&o.schema, "schema", false, "print the JSON schema of made-up messages, and send nothing")
	return c
}

// printSchema prints what made-up messages look like. It is JSON in every format but none.
func (a *app) printSchema(cmd *cobra.Command, args []string) error {
	if len(args) > 0 || cmd.Flags().Changed("n") {
		return output.Usage("--schema only prints the schema of made-up messages: it goes with neither a file nor --n")
	}
	if a.p.Format == output.None {
		return nil
	}
	if a.p.Format == output.Text {
		_, err := a.p.Out.Write(source.Schema)
		return err
	}
	return a.p.Object(json.RawMessage(source.Schema), nil)
}

// sent is the summary of a send.
type sent struct {
	Sent       int     `json:"sent"`
	Unconfirm  int     `json:"unconfirmed,omitempty"`
	Duplicates int     `json:"duplicates"`
	Poison     int     `json:"poison"`
	Bytes      int64   `json:"bytes"`
	ElapsedMS  int64   `json:"elapsed_ms"`
	Seed       *uint64 `json:"seed,omitempty"`
}

func (a *app) send(cmd *cobra.Command, o sendOptions, args []string) (err error) {
	ctx := cmd.Context()
	headers, err := pairs("header", o.headers)
	if err != nil {
		return err
	}
	common := source.Common{Headers: headers, Group: o.group, Delay: o.delay}
	if err := o.check(cmd, args); err != nil {
		return err
	}
	set := open.New(open.Options{OneShot: true})
	defer closing(&err, set)
	queue, err := set.Queue(ctx, o.queue)
	if err != nil {
		return err
	}
	sender, ok := driver.As[driver.Sender](queue)
	if !ok {
		return output.Usage("--queue: queue %s takes no messages from here", queue.Features().Name)
	}
	if common.Delay > 0 && !queue.Features().DelaysSend {
		return output.Usage("--delay: queue %s cannot delay a message", queue.Features().Name).WithHint("leave --delay away, or delay what sends it")
	}
	if most := queue.Features().MaxBatch; most > 0 && !cmd.Flags().Changed("batch-size") {
		o.batch = min(o.batch, most)
	} else if most > 0 && o.batch > most {
		return output.Usage("--batch-size %d: queue %s takes %d at most", o.batch, queue.Features().Name, most)
	}
	src, made, done, err := a.messages(o, args, common)
	if err != nil {
		return err
	}
	defer done()
	s := &sending{app: a, o: o, q: sender, began: time.Now()}
	err = s.run(ctx, src)
	s.sum.ElapsedMS = time.Since(s.began).Milliseconds()
	if made != nil {
		s.sum.Seed = &o.synthetic.Seed
		if err == nil { // else more were made than sent
			s.sum.Poison, s.sum.Duplicates = made.Poison, made.Doubled
		}
	}
	if perr := s.report(); perr != nil && err == nil {
		err = perr
	}
	return err
}

func (o *sendOptions) check(cmd *cobra.Command, args []string) error {
	switch {
	case o.batch < 1:
		return output.Usage("--batch-size must be 1 or more")
	case o.rate < 0 || o.rate > 1e6:
		return output.Usage("--rate must be between 0 and 1000000")
	}
	if cmd.Flags().Changed("n") {
		if len(args) > 0 || o.envelope {
			return output.Usage("--n makes messages up: it goes with neither a file nor --envelope")
		}
		if err := o.synthetic.Check(); err != nil {
			return output.Usage("%w", err)
		}
		return nil
	}
	for _, name := range []string{"poison-count", "poison-every", "duplicate-rate", "same-key", "seed"} {
		if cmd.Flags().Changed(name) {
			return output.Usage("--%s is for made-up messages: it needs --n", name)
		}
	}
	return nil
}

// messages opens the source; made is set for made-up ones.
func (a *app) messages(o sendOptions, args []string, c source.Common) (src source.Source, made *source.Made, done func(), err error) {
	if o.synthetic.N > 0 {
		made = o.synthetic.New(c)
		return made, made, func() {}, nil
	}
	in, done := a.in, func() {}
	if len(args) == 1 && args[0] != "-" {
		f, err := os.Open(args[0])
		if err != nil {
			return nil, nil, nil, output.Usage("open the file to send: %w", err)
		}
		in, done = f, func() { _ = f.Close() }
	} else if len(args) == 0 && a.stdin != nil && output.Terminal(a.stdin) {
		return nil, nil, nil, output.Usage("nothing to send: give a file, - for stdin, or --n").WithHint("semel send --help")
	}
	if o.envelope {
		return source.NewEnvelopes(in, c), nil, done, nil
	}
	return source.NewLines(in, c), nil, done, nil
}

// sending sends batches at a rate.
type sending struct {
	*app
	o     sendOptions
	q     driver.Sender
	began time.Time
	sum   sent
}

func (s *sending) run(ctx context.Context, src source.Source) error {
	size := s.o.batch
	if s.o.rate > 0 {
		// Small batches keep the rate even: ten a second at least.
		size = min(size, max(1, int(s.o.rate/10)))
	}
	in := feed(ctx, src, size)
	for {
		batch, err := gather(ctx, in, size)
		if len(batch) > 0 {
			if err := s.throttle(ctx); err != nil {
				return s.stopped(err)
			}
			if err := s.flush(ctx, batch); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return s.throttle(ctx) // N messages at rate R take N/R
		case err != nil:
			return s.stopped(err)
		}
	}
}

// fed is what a source said.
type fed struct {
	m   driver.Message
	err error
}

// feed reads a source in a goroutine, because reading from a pipe cannot be interrupted; it ends with the source, or
// with the process.
func feed(ctx context.Context, src source.Source, size int) <-chan fed {
	out := make(chan fed, size)
	go func() {
		for {
			m, err := src.Next()
			select {
			case out <- fed{m, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return out
}

// linger is how long a batch that is not full waits for the next message: a pipe that trickles is sent as it comes.
const linger = 5 * time.Millisecond

// gather waits for a message and takes up to size of them, fewer when they are large or slow to come.
func gather(ctx context.Context, in <-chan fed, size int) (batch []driver.Message, err error) {
	var slow <-chan time.Time
	for bytes := 0; len(batch) < size && bytes < sendBytes; {
		select {
		case f := <-in:
			if f.err != nil {
				return batch, f.err
			}
			bytes += len(f.m.Body)
			batch = append(batch, f.m)
		case <-slow:
			return batch, nil
		case <-ctx.Done():
			return batch, ctx.Err()
		}
		if slow == nil {
			slow = time.After(linger)
		}
	}
	return batch, nil
}

// throttle waits until the next message is due.
func (s *sending) throttle(ctx context.Context) error {
	if s.o.rate <= 0 {
		return ctx.Err()
	}
	return wait.Until(ctx, s.began.Add(time.Duration(float64(s.sum.Sent)/s.o.rate*float64(time.Second))))
}

func (s *sending) flush(ctx context.Context, batch []driver.Message) error {
	if err := s.q.Send(ctx, batch...); err != nil {
		text, hint := output.Split(err)
		if hint != "" {
			hint += "; then "
		}
		if culprit := (*driver.ItemError)(nil); errors.Is(err, driver.ErrNotCommitted) || errors.As(err, &culprit) {
			return output.Failed("%s; %s sent before, none of these %d", text, words.Count(s.sum.Sent, "message"), len(batch)).
				WithHint("%ssend the rest", hint)
		}
		s.sum.Unconfirm = len(batch)
		return output.Failed("%s; %s sent before, any of these %d may have been", text, words.Count(s.sum.Sent, "message"), len(batch)).
			WithHint("%ssend the rest again: messages with the same idempotency-key take effect once", hint)
	}
	s.sum.Sent += len(batch)
	for _, m := range batch {
		s.sum.Bytes += int64(len(m.Body))
		if s.p.Format == output.JSONL {
			if err := s.p.Object(map[string]string{"id": m.ID}, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *sending) stopped(err error) error {
	return fmt.Errorf("stopped after %s: %w", words.Count(s.sum.Sent, "message"), err)
}

func (s *sending) report() error {
	if s.p.Format == output.JSONL { // the ids were printed as they were sent
		return nil
	}
	text := fmt.Sprintf("sent %d", s.sum.Sent)
	if s.sum.Duplicates > 0 {
		text += fmt.Sprintf(", %d of them duplicates", s.sum.Duplicates)
	}
	if s.sum.Poison > 0 {
		text += fmt.Sprintf(", %d poison", s.sum.Poison)
	}
	if s.sum.Seed != nil {
		text += fmt.Sprintf(" (seed %d)", *s.sum.Seed)
	}
	return s.p.Line(s.sum, "%s", text)
}
