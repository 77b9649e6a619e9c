package cli

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/worker"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// diagnosis is what doctor prints.
type diagnosis struct {
	Verdict    string            `json:"verdict"` // ok, warnings, dangerous
	Guarantee  string            `json:"guarantee,omitempty"`
	Guarantees *semel.Guarantees `json:"guarantees,omitempty"`
	Findings   open.Facts        `json:"findings"`
}

func (a *app) doctorCommand() *cobra.Command {
	w := config.Default()
	var horizon time.Duration
	var aws sqsFlags
	var bench string
	c := &cobra.Command{
		Use:   "doctor --queue URL [the flags of work]",
		Short: "Check a worker's settings and what they guarantee (exit 3: dangerous)",
		Example: `  semel doctor --config worker.yaml
  semel doctor --queue 'sqlite:shop.db?queue=orders' --key json:/order_id --retention 14d
  semel doctor --queue 'postgres://shop@db.example.org/shop?queue=orders' --committers 2
  semel doctor --queue 'sqs://orders?region=eu-west-1' --store dynamodb://semel-records \
    --key json:/order_id --lambda-timeout 30s`,
		Annotations: map[string]string{"settings": "worker"},
		RunE: func(cmd *cobra.Command, args []string) error {
			w.Command = a.argv(args, &w)
			return a.doctor(cmd.Context(), w, horizon, aws, bench)
		},
	}
	config.Bind(c.Flags(), &w)
	config.DurationVar(c.Flags(), &horizon, "horizon", "how late a duplicate may come: broker retention + redrives + producer retries")
	c.Flags().StringVar(&bench, "bench", "", "judge the load test whose result is in this file (semel bench -o json)")
	config.DurationVar(c.Flags(), &aws.lambda, "lambda-timeout", "time limit of the Lambda function that the queue calls, if one does")
	config.DurationVar(c.Flags(), &aws.window, "lambda-window", "its batching window")
	c.Flags().BoolVar(&aws.identified, "producers-set-id", false, "all producers set idempotency-key, so that a redrive of the queue keeps the key")
	return c
}

func (a *app) doctor(ctx context.Context, w config.Work, horizon time.Duration, aws sqsFlags, bench string) (err error) {
	given := w.Exec != "" || w.Pipe != "" || w.HTTP != "" || len(w.Command) > 0 || w.Simulate.On
	if !given {
		w.Exec = "true" // the queue and the store can be checked without a handler
	}
	if err := w.Check(); err != nil {
		return err
	}
	set := open.New(open.Options{
		MustExist: true, ReadOnly: true, Visibility: time.Duration(w.Visibility), Committers: w.Committers,
	})
	defer closing(&err, set)
	queue, store, err := set.Pair(ctx, w.Queue, w.StoreURL())
	if err != nil {
		return err
	}
	x := newInspection(w, queue, store)
	x.horizon, x.handler, x.identified = horizon, given, aws.identified
	if err := x.servers(ctx, set); err != nil {
		return err
	}
	if err := x.sqs(ctx, set, aws); err != nil {
		return err
	}
	x.all()
	x.longTerm(ctx, store)
	x.workers(ctx, store)
	if err := x.loadTest(bench); err != nil {
		return err
	}
	cfg, err := semelConfig(w, queue, store)
	if err != nil {
		return err
	}
	cfg.Handler = semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil })
	if w.Effects == "sql" {
		cfg.Handler = worker.Statements(nil)
	}
	if w.Probe != "" || w.ProbeHTTP != "" {
		cfg.Probe = func(context.Context, *semel.Attempt) (semel.ProbeResult, error) { return semel.ProbeUnknown, nil }
	}
	d := diagnosis{Findings: x.Facts, Verdict: verdicts[x.Worst()]}
	if p, err := semel.Guarantee(cfg); err != nil {
		if x.Worst() != ops.LevelDanger {
			return config.Explain(err)
		}
	} else {
		d.Guarantees, d.Guarantee = &p, p.String()
	}
	if err := a.p.Object(d, d.text); err != nil {
		return err
	}
	if x.Worst() == ops.LevelDanger {
		return output.Negative("these settings are dangerous").WithHint("fix what is marked danger")
	}
	return nil
}

func (d diagnosis) text(b *strings.Builder) {
	for _, f := range d.Findings {
		fmt.Fprintf(b, "%-8s %-12s %s\n", f.Level, f.Check, f.Detail)
		if f.Try != "" {
			fmt.Fprintf(b, "%-8s %-12s try: %s\n", "", "", f.Try)
		}
	}
	if d.Guarantee != "" {
		fmt.Fprintf(b, "\nguarantee: %s\n", d.Guarantee)
	}
}

// inspection collects the findings of all checks.
type inspection struct {
	w        config.Work
	horizon  time.Duration
	q        driver.QueueFeatures
	s        driver.StoreFeatures
	receives int // after which the queue moves a message away; 0 = never
	// handler: one is given. identified: --producers-set-id.
	handler, identified bool

	open.Facts
}

func newInspection(w config.Work, queue driver.Queue, store driver.Store) *inspection {
	return &inspection{w: w, q: queue.Features(), s: store.Features(), receives: receives(queue), handler: true}
}

// checks are those of doctor that need no further requests to queue and store.
func (s *shift) checks() open.Facts {
	x := newInspection(s.w, s.queue, s.records)
	x.all()
	x.deadLetterRetention()
	return x.Facts
}

// warnOf logs what doctor calls dangerous.
func (s *shift) warnOf(all open.Facts) {
	for _, f := range all {
		if f.Level != ops.LevelDanger {
			continue
		}
		hint := "semel doctor"
		if f.Try != "" {
			hint = f.Try + "; semel doctor"
		}
		s.log.Warn("dangerous setting: "+f.Detail, "check", f.Check, "hint", hint)
	}
}

// verdicts name the worst level of what was found.
var verdicts = map[string]string{ops.LevelOK: "ok", ops.LevelWarning: "warnings", ops.LevelDanger: "dangerous"}

func (x *inspection) all() {
	x.durability()
	x.times()
	x.retention()
	x.redriveLimit()
	x.key()
	x.brokerID()
	x.effects()
	x.duplicates()
	x.program()
}

// servers adds what the servers report. A server of both queue and store is asked once.
func (x *inspection) servers(ctx context.Context, set *open.Set) error {
	places := [][2]string{{"queue", x.w.Queue}}
	if !open.SamePlace(x.w.Queue, x.w.StoreURL()) {
		places = append(places, [2]string{"store", x.w.StoreURL()})
	}
	for _, p := range places {
		facts, err := set.Examine(ctx, p[0], p[1])
		if err != nil {
			return err
		}
		x.Facts = append(x.Facts, facts...)
	}
	return nil
}

func (x *inspection) durability() {
	x.durable("queue", "messages", x.q.Name, x.q.Kind, x.q.Durable, x.q.Caveats)
	x.durable("store", "records", x.s.Name, x.s.Kind, x.s.Durable, x.s.Caveats)
	if !x.q.DeadLetters {
		x.Add(ops.LevelDanger, "dead letters", "a table of records with a sort key (semel migrate makes it), or dead_letters= in the URL of an SQS queue", "queue %s keeps no dead letters: a message that fails for good would be lost", x.q.Name)
	}
}

// durable reports what survives. Nothing surviving is only a warning, because memory is obviously for development. A server that
// can lose confirmed writes is dangerous.
func (x *inspection) durable(check, what, name, kind string, durable bool, caveats []string) {
	switch {
	case !durable && len(caveats) == 0:
		x.Add(ops.LevelWarning, check, "--"+check+" 'sqlite:orders.db?queue=orders'", "%s are lost with the process: for development only", what)
		return
	case !durable:
		x.Add(ops.LevelDanger, check, "fix the server's settings, or the role's", "%s (%s) can lose %s that it confirmed", name, kind, what)
	default:
		x.Add(ops.LevelOK, check, "", "%s (%s) keeps %s when processes die", name, kind, what)
	}
	for _, c := range caveats {
		level := ops.LevelWarning
		if !durable {
			level = ops.LevelDanger
		}
		x.Add(level, check, "", "%s", c)
	}
}

func (x *inspection) times() {
	visible, limit := time.Duration(x.w.Visibility), time.Duration(x.w.MaxRuntime)
	if x.w.Timeout > 0 {
		limit = time.Duration(x.w.Timeout)
	}
	lease := x.w.Lease()
	switch {
	case x.q.MaxVisible > 0 && limit > x.q.MaxVisible:
		x.Add(ops.LevelDanger, "visibility", "lower --max-runtime", "a run may last %s, and the queue keeps a delivery for %s at most",
			words.About(limit), words.About(x.q.MaxVisible))
	case limit > visible && !x.q.Extends && x.q.Visible > 0:
		x.Add(ops.LevelDanger, "visibility", fmt.Sprintf("--visibility %s or --timeout %s", words.About(limit*10/9), words.About(lease)),
			"a run may last %s, the visibility is %s, and this queue cannot extend it: every long run is delivered again",
			words.About(limit), words.About(visible))
	case visible < 2*time.Second:
		x.Add(ops.LevelWarning, "visibility", "--visibility 30s", "%s leaves the heartbeat %s: a short pause of the process loses the lease",
			words.About(visible), words.About(lease/3))
	case limit > visible:
		x.Add(ops.LevelOK, "visibility", "", "%s, kept up by a heartbeat every %s for runs of up to %s", words.About(visible),
			words.About(lease/3), words.About(limit))
	default:
		x.Add(ops.LevelOK, "visibility", "", "%s covers runs of up to %s even without a heartbeat", words.About(visible), words.About(limit))
	}
	if kill := x.w.KillGraceOr(); x.handler && x.w.HTTP == "" && !x.w.Simulate.On && kill >= lease {
		x.Add(ops.LevelDanger, "kill-grace", "--kill-grace "+words.About(lease/3),
			"%s is not shorter than the lease (%s): a cancelled handler may still work when another worker takes over",
			words.About(kill), words.About(lease))
	}
}

func (x *inspection) key() {
	switch {
	case x.w.Key == "id":
		x.Add(ops.LevelWarning, "key", "--key json:/order_id or another field of the message, or have producers set idempotency-key",
			"where messages carry no idempotency-key, the key is the broker's id: a producer that sends twice makes two keys")
	default:
		x.Add(ops.LevelOK, "key", "", "%s", x.w.Key)
	}
	if x.w.HasPreviousKey() {
		x.Add(ops.LevelOK, "previous key", "", "keys of before are claimed too: take --previous-key and --previous-consumer away %s after the last "+
			"worker without them has stopped, when no key waits for its next attempt or for a person (semel records ls --state RELEASED)",
			x.w.Retention)
	}
	if x.w.OnMissingKey == "id" && x.w.Key != "id" {
		x.Add(ops.LevelWarning, "key", "--on-missing-key fail",
			"messages without a key get that of --key id: a producer that sends twice makes two keys of them, and an id that another message has as its key meets it")
	}
	if x.w.OnMissingKey == "unprotected" {
		x.Add(ops.LevelWarning, "key", "--on-missing-key fail", "messages without a key run unprotected, as often as they come")
	}
	if x.w.Fingerprint == "none" && !strings.HasPrefix(x.w.Key, "json:") && x.w.Key != "body" {
		x.Add(ops.LevelWarning, "fingerprint", "--fingerprint body", "none: a second payload under one key would be taken for a duplicate and dropped")
	}
}

func (x *inspection) effects() {
	switch {
	case x.w.Effects == "sql" && !x.s.Durable:
		x.Add(ops.LevelOK, "effects", "", "statements commit with the record, and are lost with it")
	case x.w.Effects == "sql":
		x.Add(ops.LevelOK, "effects", "", "statements commit with the record: exactly once")
	case x.w.Takeover == "once":
		x.Add(ops.LevelOK, "effects", "", "a run of unknown outcome is parked for a person")
	case x.w.Takeover == "probe":
		x.Add(ops.LevelOK, "effects", "", "a run of unknown outcome is probed before it is repeated")
	default:
		x.Add(ops.LevelOK, "effects", "", "exactly once where the downstream deduplicates on the effect key (SEMEL_EFFECT_KEY, Idempotency-Key)")
	}
}

// duplicates reports what keeps a key from running twice: a name that the downstream compares, a conditional write before each run, or a lock
// whose token refuses late writers.
func (x *inspection) duplicates() {
	switch {
	case !x.s.Durable:
		x.Add(ops.LevelOK, "duplicates", "", "1 of 3 (name): claims are lost with the records; what stays is the effect key, which is the same for every duplicate")
	case x.w.Effects == "sql":
		x.Add(ops.LevelOK, "duplicates", "", "3 of 3 (lock): a late worker's statements are refused with its token")
	default:
		x.Add(ops.LevelOK, "duplicates", "", "2 of 3 (conditional write): a key is claimed before it runs. 3 (lock) needs a target that refuses "+
			"smaller fences (SEMEL_FENCE, Semel-Fence), or --effects sql")
	}
}

func (x *inspection) program() {
	switch {
	case x.w.HTTP != "":
		u, err := url.Parse(x.w.HTTP)
		if err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
			x.Add(ops.LevelWarning, "handler", "https://…", "%s is reached without encryption", u.Host)
		}
	case x.w.Exec != "" || x.w.Pipe != "":
		if name := missingProgram(x.w.Exec + x.w.Pipe); name != "" {
			x.Add(ops.LevelWarning, "handler", "install it, or run doctor where the worker runs", "%s is not installed here", name)
		}
	case len(x.w.Command) > 0:
		if _, err := exec.LookPath(x.w.Command[0]); err != nil {
			x.Add(ops.LevelDanger, "handler", "give its path", "%s cannot be run: %v", x.w.Command[0], err)
		}
	}
}

// missingProgram is the program that a command for /bin/sh begins with, if this machine does not have it. It judges only commands
// that begin with a plain name.
func missingProgram(command string) string {
	name, _, _ := strings.Cut(command, " ")
	if !plainProgram.MatchString(name) {
		return ""
	}
	if exec.Command("/bin/sh", "-c", `command -v "$0"`, name).Run() == nil { //nolint:noctx // it ends at once
		return ""
	}
	return name
}

var plainProgram = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./+-]*$`)

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// longTerm reports for how long the store keeps EXPIRED records of this consumer.
func (x *inspection) longTerm(ctx context.Context, store driver.Store) {
	lt, ok := driver.As[driver.LongTerm](store)
	if !ok {
		return // New refuses --long-term there
	}
	periods, err := lt.LongTerms(ctx)
	if err != nil {
		x.Add(ops.LevelWarning, "long-term", "", "the long-term periods cannot be read: %v", err)
		return
	}
	consumer := x.w.Consumer
	if consumer == "" {
		consumer = x.q.Name
	}
	period := max(periods[consumer], time.Duration(x.w.LongTerm))
	if period > 0 {
		x.Add(ops.LevelOK, "long-term", "", "records stay EXPIRED for %s after their retention: late duplicates become dead letters (late)",
			config.Duration(period))
	}
}
