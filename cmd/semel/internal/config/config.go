// Package config is the worker's configuration: one struct that is flags, environment and file at once.
//
// Precedence: flag, then SEMEL_OPT_* in the environment, then the YAML file, then the default. Unknown keys are errors.
package config

import (
	"encoding"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/simulate"
)

// Work is the configuration of semel work. The tag conf is the name of the flag and of the key in the file; in the
// environment it is SEMEL_OPT_ and the name in capitals with _ for -. The tag group begins a group of the help text.
type Work struct {
	Queue    string `group:"Where" conf:"queue" yaml:"queue" help:"URL of the queue to consume"`
	Store    string `conf:"store" yaml:"store" help:"URL of the record store (default: the queue's, where that is a database)"`
	Consumer string `conf:"consumer" yaml:"consumer" help:"scope of the keys (default: the queue's name)"`

	Exec              string         `group:"Handler" conf:"exec" yaml:"exec" help:"handler: a command for /bin/sh -c"`
	Command           []string       `conf:"command" yaml:"command" flag:"-"`
	Pipe              string         `conf:"pipe" yaml:"pipe" help:"handler: a command for /bin/sh -c that keeps running, and reads messages and writes results as JSON lines (docs/pipe.md)"`
	Processes         int            `conf:"processes" yaml:"processes" help:"with --pipe: processes that run"`
	InFlight          int            `conf:"in-flight" yaml:"in-flight" help:"with --pipe: lines that a process may have without a result; what hangs or kills it costs all of them a run"`
	PipeBatch         int            `conf:"pipe-batch" yaml:"pipe-batch" help:"with --pipe: a line is an array of up to N messages; with --effects sql its effects commit in one transaction (0: single messages)"`
	HTTP              string         `conf:"http" yaml:"http" help:"handler: a URL that takes messages by POST"`
	HTTPBatch         int            `conf:"http-batch" yaml:"http-batch" help:"with --http: a request is an array of up to N messages, and --concurrency counts requests; with --effects sql its effects commit in one transaction (0: single messages)"`
	WebhookSecretFile string         `conf:"webhook-secret-file" yaml:"webhook-secret-file" help:"sign requests of --http as Standard Webhooks do; the file holds whsec_…"`
	Compat            string         `conf:"compat" yaml:"compat" values:"sqsd" help:"sqsd: send the X-Aws-Sqsd-* headers with --http too"`
	Simulate          simulate.Knobs `conf:"simulate" yaml:"simulate" help:"handler for experiments that sleeps, leaves an effect in a ledger and crashes: on, or a list of knobs (docs/worker.md)"`
	Effects           string         `conf:"effects" yaml:"effects" values:"sql" help:"sql: the handler prints SQL statements as JSON lines, which commit with the record"`
	Probe             string         `conf:"probe" yaml:"probe" help:"command that says whether an effect happened: exit 0 yes, 75 no, else unknown"`
	ProbeHTTP         string         `conf:"probe-http" yaml:"probe-http" help:"URL that is asked (GET) whether an effect happened: 200 yes, 404 no, else unknown; {key} and {effect_key} are replaced"`

	Key          string `group:"Key" conf:"key" yaml:"key" forms:"id header: json:/ body event s3 cloudevents eventbridge sns gcs pubsub kafka stripe github sqsfifo position" help:"the message's key, which takes effect once: id, header:NAME, json:/PTR,/PTR, body, event, s3, cloudevents, eventbridge, sns, gcs, pubsub, kafka, stripe, github, sqsfifo, position (docs/worker.md)"`
	Strategy     string `conf:"strategy" yaml:"strategy" forms:"once version:/ timestamp:/ sequence:/ sequencer:/ text:/" help:"once, or messages replace each other: version:/PTR, timestamp:/PTR,/TIE, sequence:/PTR,gap=park:30s, sequencer:/PTR, text:/PTR (or header:NAME)"`
	Fingerprint  string `conf:"fingerprint" yaml:"fingerprint" forms:"default none body json:/ header:" help:"what must match in duplicates: the forms of --key, none, or default (the body, unless the key is content)"`
	OnMissingKey string `conf:"on-missing-key" yaml:"on-missing-key" values:"fail id unprotected" help:"fail (dead letter), id (the key is that of --key id, counted) or unprotected (run it without protection, counted)"`
	// PreviousKey and PreviousConsumer are the old --key and --consumer during a change.
	PreviousKey      string `conf:"previous-key" yaml:"previous-key" help:"the old --key: while it is set, keys of both recipes are claimed"`
	PreviousConsumer string `conf:"previous-consumer" yaml:"previous-consumer" help:"the old --consumer: while it is set, keys of both names are claimed"`

	Claim       string  `group:"Failure" conf:"claim" yaml:"claim" values:"before-run at-commit" help:"when a first delivery is claimed: before-run, or at-commit, together with its effects (with --effects sql; saves a write)"`
	Takeover    string  `conf:"takeover" yaml:"takeover" values:"resume probe once" help:"what happens to a run of unknown outcome: resume, probe (needs --probe) or once (park)"`
	Busy        string  `conf:"busy" yaml:"busy" values:"defer fail" help:"other messages of a key in progress: defer (until the lease ends) or fail (dead-letter them at once, kind busy; redeliveries of the running message are still deferred)"`
	MaxAttempts int     `conf:"max-attempts" yaml:"max-attempts" help:"failed runs after which a message is a dead letter"`
	Backoff     Range   `conf:"backoff" yaml:"backoff" help:"delay before the next attempt, doubling"`
	Retry       Retries `conf:"retry" yaml:"retry" help:"rule for a class of failures (may be repeated): exit=3:attempts=10,backoff=5s..1m or status=4xx:dead"`
	Breaker     int     `conf:"breaker" yaml:"breaker" help:"pause after N runs in a row that find the downstream unavailable (0: never)"`
	BreakerOpen Range   `conf:"breaker-open" yaml:"breaker-open" help:"length of the pause, doubling"`

	Concurrency      int      `group:"Limits" conf:"concurrency" yaml:"concurrency" help:"handlers that run at once"`
	Batch            int      `conf:"batch" yaml:"batch" help:"items of one round trip to queue or store"`
	Committers       int      `conf:"committers" yaml:"committers" help:"claims and commits in flight at once, sharded by key: 2 to 4 for a busy PostgreSQL"`
	Rate             Rate     `conf:"rate" yaml:"rate" help:"runs started per second: 50, 0.5, 90/m, 100/h,burst=5 (0: no limit)"`
	GroupBy          string   `conf:"group-by" yaml:"group-by" forms:"group header: json:/" help:"groups of the limits below: group (the message's), header:NAME, json:/POINTER"`
	GroupConcurrency int      `conf:"group-concurrency" yaml:"group-concurrency" help:"handlers of one group that run at once (0: no limit)"`
	GroupRate        Rate     `conf:"group-rate" yaml:"group-rate" help:"runs of one group started per second (0: no limit)"`
	ResultMax        Size     `conf:"result-max" yaml:"result-max" help:"largest result that is stored"`
	CacheSize        int      `conf:"cache-size" yaml:"cache-size" help:"keep N completed keys in memory, to recognise duplicates without the store (0: none)"`
	CacheMaxAge      Duration `conf:"cache-max-age" yaml:"cache-max-age" help:"how long a completed key stays in memory"`

	Visibility Duration  `group:"Time" conf:"visibility" yaml:"visibility" help:"how long a delivery is hidden from others without a heartbeat"`
	Timeout    Duration  `conf:"timeout" yaml:"timeout" help:"cancel a run after this (0: none)"`
	MaxRuntime Duration  `conf:"max-runtime" yaml:"max-runtime" help:"hard limit of a run"`
	Grace      Duration  `conf:"grace" yaml:"grace" help:"how long running handlers may take when the worker stops"`
	KillGrace  Duration  `conf:"kill-grace" yaml:"kill-grace" help:"between SIGTERM and SIGKILL of a cancelled handler process (default: 5s, or a third of the lease where that is shorter)"`
	Retention  Retention `conf:"retention" yaml:"retention" help:"how long a record is kept, longer than any duplicate can be late; 14d,failed=60d overrides it for an end (completed, failed, dropped, released); not given: 14d, or the queue's horizon if that is longer"`
	Producers  Duration  `conf:"producer-retries" yaml:"producer-retries" help:"how long producers may send a message again (0: no longer than the queue redelivers it)"`
	LongTerm   Duration  `conf:"long-term" yaml:"long-term" help:"how long records stay EXPIRED after their retention: without result and payload, but late duplicates become dead letters (late) (0: they run)"`
	MaxAge     Duration  `conf:"max-age" yaml:"max-age" help:"dead-letter messages that were sent longer ago than this and never started (0: any age)"`

	UntilEmpty  bool     `group:"When to stop" conf:"until-empty" yaml:"until-empty" help:"stop when nothing is visible, in flight or delayed"`
	IdleTimeout Duration `conf:"idle-timeout" yaml:"idle-timeout" help:"stop when nothing arrives for this long (0: never)"`
	Limit       int      `conf:"limit" yaml:"limit" help:"stop after N deliveries (0: no limit)"`

	Listen    string `group:"Output" conf:"listen" yaml:"listen" help:"show /metrics (Prometheus), /v1/scale, /livez and /readyz on this address, 127.0.0.1:9464 say (default: nowhere)"`
	Console   string `conf:"console" yaml:"console" help:"serve the console, which only shows, on this address, 127.0.0.1:7070 say (default: nowhere)"`
	AllowHost string `conf:"allow-host" yaml:"allow-host" help:"further names that clients may call the servers of --listen and --console by, separated by commas"`
	EMF       string `conf:"emf" yaml:"emf" help:"append figures to this file as CloudWatch embedded metrics, a line a minute; - is stdout"`
	Traces    string `conf:"traces" yaml:"traces" values:"otlp" help:"export OpenTelemetry spans: otlp, to OTEL_EXPORTER_OTLP_ENDPOINT (default: none)"`
	Events    string `conf:"events" yaml:"events" help:"append every event to this file, as JSON lines"`
}

// Default returns the documented defaults.
func Default() Work {
	return Work{
		Key: "id", Fingerprint: "default", Strategy: "once", OnMissingKey: "fail", Claim: "before-run", Takeover: "resume", Busy: "defer",
		Concurrency: semel.DefaultConcurrency, Batch: semel.DefaultBatch, Committers: 1,
		Visibility: Duration(semel.DefaultVisibility), MaxRuntime: Duration(semel.DefaultMaxRuntime),
		Grace:       Duration(semel.DefaultGrace),
		MaxAttempts: semel.DefaultMaxAttempts,
		Backoff:     Range{Duration(semel.DefaultBackoffMin), Duration(semel.DefaultBackoffMax)},
		Processes:   4,
		InFlight:    1,
		Breaker:     1,
		BreakerOpen: Range{Duration(semel.DefaultBreakerOpenMin), Duration(semel.DefaultBreakerOpenMax)},
		GroupBy:     "group",
		CacheMaxAge: Duration(cache.DefaultMaxAge),
		ResultMax:   Size(semel.DefaultResultMax),
	}
}

// Lease is how long a claim lasts without a heartbeat: 0.9 of the visibility.
func (w *Work) Lease() time.Duration { return time.Duration(w.Visibility) / 10 * 9 }

// Slots is how many handlers run at once: enough for every line of every process, and for every array of --http-batch.
func (w *Work) Slots() int {
	if w.Pipe == "" {
		return w.Concurrency * max(1, w.HTTPBatch)
	}
	return max(w.Concurrency, w.Processes*w.InFlight*max(1, w.PipeBatch))
}

// KillGraceOr is the kill grace; unless one is given it ends well before the lease does, so that a cancelled handler is
// gone when another worker takes over.
func (w *Work) KillGraceOr() time.Duration {
	if w.KillGrace > 0 {
		return time.Duration(w.KillGrace)
	}
	return min(5*time.Second, w.Lease()/3)
}

// Redact takes what is secret out of the URLs, so that the settings can be shown, and names the settings that had it.
func (w *Work) Redact() (had []string) {
	for _, f := range fields(w) {
		s, ok := f.value.Addr().Interface().(*string)
		if !ok || f.name == "exec" || f.name == "pipe" || f.name == "probe" || !open.Connects(*s) {
			continue
		}
		if shown := open.Redact(*s); shown != *s {
			*s = shown
			had = append(had, f.name)
		}
	}
	return had
}

// field is one setting of Work.
type field struct {
	name, help string
	group      string // the group that begins with it
	hidden     bool   // no flag
	// values are the words that it takes, forms how what it takes begins.
	values, forms []string
	value         reflect.Value
}

// fields lists the settings of w in the order of the struct.
func fields(w *Work) []field {
	v := reflect.ValueOf(w).Elem()
	out := make([]field, 0, v.NumField())
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		out = append(out, field{
			name: tag.Get("conf"), help: tag.Get("help"), group: tag.Get("group"), hidden: tag.Get("flag") == "-", value: v.Field(i),
			values: strings.Fields(tag.Get("values")), forms: strings.Fields(tag.Get("forms")),
		})
	}
	return out
}

// Keys lists the names of all settings.
func Keys() []string {
	var out []string
	for _, f := range fields(&Work{}) {
		out = append(out, f.name)
	}
	return out
}

// ValuesAnnotation is the annotation of a flag that lists the values, or the beginnings of values, that it takes.
const ValuesAnnotation = "semel_values"

// Values lists the words that a setting takes.
func Values(name string) []string {
	for _, f := range fields(&Work{}) {
		if f.name == name {
			return f.values
		}
	}
	return nil
}

// GroupAnnotation is the annotation of a flag that names its group in the help text.
const GroupAnnotation = "semel_group"

// Groups lists the groups of flags in the order of the help text.
func Groups() []string {
	var out []string
	for _, f := range fields(&Work{}) {
		if f.group != "" {
			out = append(out, f.group)
		}
	}
	return out
}

// Bind adds the settings as flags of a command; w holds their defaults and gets their values.
func Bind(fs *pflag.FlagSet, w *Work) {
	group := ""
	for _, f := range fields(w) {
		if f.group != "" {
			group = f.group
		}
		if f.hidden {
			continue
		}
		switch p := f.value.Addr().Interface().(type) {
		case *string:
			fs.StringVar(p, f.name, *p, f.help)
		case *int:
			fs.IntVar(p, f.name, *p, f.help)
		case *bool:
			fs.BoolVar(p, f.name, *p, f.help)
		case pflag.Value:
			fs.Var(p, f.name, f.help)
			if alone, ok := p.(interface{ Alone() string }); ok {
				fs.Lookup(f.name).NoOptDefVal = alone.Alone()
			}
		}
		flag := fs.Lookup(f.name)
		flag.Annotations = map[string][]string{GroupAnnotation: {group}}
		if len(f.values)+len(f.forms) > 0 {
			flag.Annotations[ValuesAnnotation] = append(slices.Clone(f.values), f.forms...)
		}
		if flag.DefValue == "0s" {
			flag.DefValue = "" // the help text says what none means
		}
	}
}

// EnvName is the environment variable of a setting.
func EnvName(name string) string {
	return "SEMEL_OPT_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Map is the settings by name, durations and sizes as text: what JSON output shows.
func (w *Work) Map() (map[string]any, error) {
	out := map[string]any{}
	for _, f := range fields(w) {
		v := f.value.Interface()
		if t, ok := v.(encoding.TextMarshaler); ok {
			b, err := t.MarshalText()
			if err != nil {
				return nil, err
			}
			v = string(b)
		}
		out[f.name] = v
	}
	return out, nil
}
