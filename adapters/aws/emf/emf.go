// Package emf writes a consumer's metrics in the CloudWatch embedded metric format: JSON lines from which CloudWatch makes
// metrics when they arrive in its logs, from Lambda, ECS or the agent. It calls nothing and needs no permission.
//
//	m, err := emf.New(os.Stdout, emf.Options{Queue: queue})
//	cfg.Events = semel.Tee(cfg.Events, m.Events())
//	go m.Run(ctx) // a line a minute; a Lambda function calls Flush at the end of an invocation instead
//
// # What to alarm on
//
// Alarm on DuplicateEffects, which an audit of the effects counts (see [Count]), on its absence, on Uncertain and
// UncertainKeys, LeasesLost and DeadLetters. Do not alarm on DuplicatesSuppressed, which counts harmless duplicates, nor on
// DynamoDB's ConditionalCheckFailedRequests: both are healthy. deploy/aws has such alarms.
//
// Format:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
package emf

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// The defaults of Options.
const (
	DefaultNamespace = "Semel"
	DefaultEvery     = time.Minute
)

// Options configure what is written, and how often.
type Options struct {
	// Namespace of the metrics. Defaults to "Semel".
	Namespace string
	// Queue names the dimension Queue (printable ASCII, else New refuses it: CloudWatch would drop the line). If it is a
	// driver.QueueInspector, every line has its depth.
	Queue driver.Queue
	// Store provides the number of keys with an unknown outcome, if it lists them (driver.StoreFeatures.ListsUncertain). It
	// may be nil.
	Store driver.Store
	// Consumer names the dimension Consumer, as Queue. Defaults to the queue's name.
	Consumer string
	// Every is the time between two lines of Run. Defaults to a minute, the finest resolution of CloudWatch for them.
	Every time.Duration
	// Timeout bounds the calls to queue and store. Defaults to 5 s.
	Timeout time.Duration
}

// Writer collects metrics and writes them as lines. Its methods may be called concurrently.
type Writer struct {
	o        Options
	inspect  driver.QueueInspector
	consumer atomic.Pointer[semel.Consumer]

	writing sync.Mutex // one line at a time
	to      io.Writer

	mu  sync.Mutex
	now figures
}

// figures are the metrics of one line.
type figures struct {
	deliveries, effects, suppressed, retried, dead, uncertain, lost, settleErrors, swept int64
	handler                                                                              sample
}

// New returns a Writer. It writes whole lines to w, each with one call.
func New(w io.Writer, o Options) (*Writer, error) {
	if o.Queue == nil {
		return nil, &semel.ConfigError{Field: "Queue", Problem: "is nil", Hint: "give the queue that the consumer reads"}
	}
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.Consumer == "" {
		o.Consumer = o.Queue.Features().Name
	}
	if o.Every <= 0 {
		o.Every = DefaultEvery
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	m := &Writer{o: o, to: w}
	if err := check(o.Namespace, m.dimensions()); err != nil {
		return nil, err
	}
	m.inspect, _ = driver.As[driver.QueueInspector](o.Queue)
	return m, nil
}

// dimensions are those of every line.
func (m *Writer) dimensions() [][2]string {
	return [][2]string{{"Consumer", m.o.Consumer}, {"Queue", m.o.Queue.Features().Name}}
}

// Watch adds the number of running handlers to the lines.
func (m *Writer) Watch(c *semel.Consumer) { m.consumer.Store(c) }

// Events returns the observer for the consumer, alone or in a semel.Tee. It does no I/O.
func (m *Writer) Events() semel.Events {
	return semel.Events{Delivery: m.delivery, Attempt: m.attempt, Health: m.health}
}

func (m *Writer) delivery(e semel.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &m.now
	switch e.Kind {
	case semel.EventReceived:
		f.deliveries++
	case semel.EventSettled:
		if e.Outcome != driver.Applied && e.Outcome != driver.Settled {
			f.settleErrors++
		}
	case semel.EventDecided:
		if e.Cause != "" {
			f.suppressed++
		}
		switch e.Decision {
		case semel.Executed:
			f.effects++
		case semel.Retried:
			f.retried++
		case semel.DeadLettered:
			f.dead++
		case semel.ParkedUncertain:
			f.uncertain++
		case semel.Fenced:
			f.lost++
		}
	}
}

func (m *Writer) attempt(e semel.Event) {
	if e.Kind == semel.EventEnded {
		m.mu.Lock()
		m.now.handler.add(e.Elapsed.Seconds())
		m.mu.Unlock()
	}
}

func (m *Writer) health(e semel.Event) {
	if e.Kind == semel.EventSwept {
		m.mu.Lock()
		m.now.swept += int64(e.Purged)
		m.now.uncertain += int64(e.Abandoned) // there may be no delivery for them ever
		m.mu.Unlock()
	}
}

// Run writes a line every Options.Every and a last one when ctx is done, and returns the error of the last one. It blocks
// until then.
func (m *Writer) Run(ctx context.Context) error {
	t := time.NewTicker(m.o.Every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return m.Flush(context.WithoutCancel(ctx))
		case <-t.C:
			_ = m.Flush(ctx) // the next line has the metrics of a line that failed
		}
	}
}

// Flush writes one line. If it cannot be written, the next line has its metrics. A queue or a store that does not respond is
// left out of the line, and is no error.
func (m *Writer) Flush(ctx context.Context) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	l := newLine(m.o.Namespace, time.Now(), m.dimensions())
	if m.inspect != nil {
		asked, cancel := context.WithTimeout(ctx, m.o.Timeout)
		s, err := m.inspect.Stats(asked)
		cancel()
		if err == nil {
			l.add("Visible", count, s.Visible)
			l.add("InFlight", count, s.InFlight)
			l.add("DeadLetters", count, s.DeadLetters)
			l.add("OldestMessageAge", seconds, s.Oldest.Seconds())
		}
	}
	if m.o.Store != nil {
		asked, cancel := context.WithTimeout(ctx, m.o.Timeout)
		n, ok, err := driver.CountUncertain(asked, m.o.Store, m.o.Consumer)
		cancel()
		if ok && err == nil {
			l.add("UncertainKeys", count, n)
		}
	}
	if c := m.consumer.Load(); c != nil {
		l.add("Running", count, c.Load().Running)
	}
	m.mu.Lock()
	f := m.now
	m.now = figures{}
	m.mu.Unlock()
	for _, v := range []struct {
		name string
		n    int64
	}{
		{"Deliveries", f.deliveries},
		{"Effects", f.effects},
		{"DuplicatesSuppressed", f.suppressed},
		{"Retried", f.retried},
		{"DeadLettered", f.dead},
		{"Uncertain", f.uncertain},
		{"LeasesLost", f.lost},
		{"SettleErrors", f.settleErrors},
		{"RecordsSwept", f.swept},
	} {
		l.add(v.name, count, v.n)
	}
	if len(f.handler.values) > 0 {
		l.add("HandlerDuration", seconds, f.handler.values)
	}
	if err := l.write(m.to); err != nil {
		m.mu.Lock()
		m.now.join(f)
		m.mu.Unlock()
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// join adds metrics that could not be written.
func (f *figures) join(g figures) {
	f.deliveries += g.deliveries
	f.effects += g.effects
	f.suppressed += g.suppressed
	f.retried += g.retried
	f.dead += g.dead
	f.uncertain += g.uncertain
	f.lost += g.lost
	f.settleErrors += g.settleErrors
	f.swept += g.swept
	for _, v := range g.handler.values {
		f.handler.add(v)
	}
}

// Count writes a line with a single metric, for example DuplicateEffects of an audit. Dimensions are pairs of name and
// value.
func Count(w io.Writer, namespace, metric string, n int64, dimensions ...[2]string) error {
	if err := check(namespace, dimensions); err != nil {
		return err
	}
	if !takes(metric, 1024) {
		return fmt.Errorf("emf: metric %.60q: write 1 to 1024 printable ASCII characters, not spaces alone, and no colon at the beginning", metric)
	}
	l := newLine(namespace, time.Now(), dimensions)
	l.add(metric, count, n)
	if err := l.write(w); err != nil {
		return fmt.Errorf("write metric %s: %w", metric, err)
	}
	return nil
}
