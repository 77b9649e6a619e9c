// Package open turns the URLs of the command line into queues and stores. Each kind of database has a file of its own.
package open

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/nearest"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// kinds are the databases that this binary knows.
var kinds = []*kind{memoryKind, sqliteKind, postgresKind, mysqlKind, sqsKind, dynamoKind, natsKind, rabbitKind, kafkaKind, redisKind}

// kind is what an adapter brings to the command line.
type kind struct {
	// schemes are its URL schemes, the usual one first. match recognises other URLs that are of the kind; nil: there are none.
	schemes []string
	match   func(raw string) bool
	// ephemeral: what is in it ends with the process.
	ephemeral bool
	// parse fills in what is special to the kind, and place. An error is of usage, and never shows a password.
	parse func(flag, raw string, t *Target) error
	open  func(ctx context.Context, t Target, o Options) (Database, error)
	// explain says why a place could not be used, in one line, and what to do about it. nil: errors are clear as they are.
	explain func(t Target, doing string, err error) error
	// sql connects for the user's own statements, which must not write if readOnly; nil for a kind without SQL.
	sql func(t Target, readOnly bool) (*sql.DB, error)
	// migrate and schema are nil for a kind without a schema.
	migrate func(ctx context.Context, t Target) (from, to int, err error)
	schema  func(t Target) (string, error)
	// create makes a queue where it is not there; nil: opening one does, or its Create method.
	create func(ctx context.Context, t Target, q NewQueue) error
	// name is what people call it, where that is not its scheme; form is an example of its URLs.
	name, form string
	// namesQueue: there is no default queue, a URL has to name one.
	namesQueue bool
	// noQueues and noRecords say why a place of this kind has none; "" when it has.
	noQueues, noRecords string
	// params are the parameters that its URLs take, where the kind is a service of AWS.
	params []string
}

// matches reports whether a URL is of the kind.
func (k *kind) matches(raw string) bool {
	scheme, _, ok := strings.Cut(raw, ":")
	return ok && slices.Contains(k.schemes, strings.ToLower(scheme)) || k.match != nil && k.match(raw)
}

// DefaultQueue is the queue of a URL that names none.
const DefaultQueue = "default"

// Target is a parsed URL.
type Target struct {
	Scheme string
	// Path is the database file (sqlite), absolute and with symbolic links resolved where it exists, so that two
	// spellings of one file are one database.
	Path string
	// Shown is the place for people: never a password.
	Shown string
	// Queue is the queue's name, "" when the URL names none.
	Queue string

	// conn is the URL without our own parameters. It may hold a password: a pointer, so that nothing that prints a Target
	// prints it.
	conn *string
	// aws is what a URL of a service of AWS says; nil for others.
	aws *awsPlace
	// nats is what a URL of NATS says; nil for others.
	nats *natsPlace
	// rabbit is what a URL of RabbitMQ says; nil for others.
	rabbit *rabbitPlace
	// kafka is what a URL of Kafka says; nil for others.
	kafka *kafkaPlace
	// place tells databases apart: two targets of one place are one database.
	place string
	kind  *kind
}

// Ephemeral reports that what is in it ends with the process.
func (t Target) Ephemeral() bool { return t.kind.ephemeral }

// QueueName is the name of the queue that is meant.
func (t Target) QueueName() string {
	if t.Queue == "" {
		return DefaultQueue
	}
	return t.Queue
}

// Parse reads a URL. flag names where it came from, for the error.
func Parse(flag, raw string) (Target, error) {
	if raw == "" {
		return Target{}, output.Usage("--%s is missing", flag).WithHint("--%s 'sqlite:orders.db?queue=orders'", flag)
	}
	if keywordDSN(raw) {
		return Target{}, output.Usage("--%s is a keyword DSN (host=… user=…), and has to be a URL", flag).
			WithHint("write --%s '%s', with the password in PGPASSWORD or a password file", flag, postgresForm)
	}
	scheme, _, ok := strings.Cut(raw, ":")
	if !ok {
		hint := "--%s 'sqlite:%s'"
		if bare := validQueueName(raw) || validTableName(raw); bare && flag == "store" {
			hint += ", or --store 'dynamodb://%[2]s'"
		} else if bare {
			hint += ", or --%[1]s 'sqs://%[2]s'"
		}
		return Target{}, output.Usage("--%s %q has no scheme", flag, Redact(raw)).WithHint(hint, flag, Redact(raw))
	}
	var t Target
	var known []string
	for _, k := range kinds {
		if t.kind == nil && k.matches(raw) {
			t.kind, t.Scheme = k, k.schemes[0]
		}
		known = append(known, k.schemes[0])
	}
	if url := ofARN(raw); t.kind == nil && url != "" {
		return Target{}, output.Usage("--%s is an ARN, and has to be a URL", flag).WithHint("--%s '%s'", flag, url)
	}
	if t.kind == nil {
		err := output.Usage("--%s has the unknown URL scheme %q (known: %s)", flag, scheme, strings.Join(known, ", "))
		if meant := nearest.Name(scheme, known, 4); meant != "" {
			return Target{}, err.WithHint("did you mean %s? --%s '%s'", meant, flag, Redact(meant+strings.TrimPrefix(raw, scheme)))
		}
		return Target{}, err.WithHint("--%s 'sqlite:orders.db?queue=orders'", flag)
	}
	if err := t.kind.parse(flag, raw, &t); err != nil {
		return Target{}, err
	}
	return t, nil
}

// Example is a URL of the kind of queue that people call so.
func Example(name string) string {
	for _, k := range kinds {
		if name == cmp.Or(k.name, k.schemes[0]) {
			return k.form
		}
	}
	return ""
}

// unquoted is what url.Parse found, without the URL.
func unquoted(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// explain words an error of the place (see kind).
func (t Target) explain(doing string, err error) error {
	if t.kind.explain == nil {
		return err
	}
	return t.kind.explain(t, doing, err)
}

// meaning is what an error of a client library means if it is one: text stands for its text ("": it is kept), or before it
// when it ends in a colon. also is an error that it is too, nil = none.
type meaning struct {
	is         bool
	text, hint string
	also       error
}

// unreachable is the error of a place that could not be used. The first meaning that applies words it. An error with words of
// its own stays as it is.
func (t Target) unreachable(doing, library string, err error, meanings ...meaning) error {
	if e := (*output.Error)(nil); errors.As(err, &e) || errors.Is(err, context.Canceled) {
		return err
	}
	text, hint := output.Split(err)
	text = strings.TrimPrefix(text, library+": ")
	for _, m := range meanings {
		if !m.is {
			continue
		}
		hint, err = m.hint, errors.Join(m.also, err)
		if strings.HasSuffix(m.text, ": ") {
			text = m.text + text
		} else if m.text != "" {
			text = m.text
		}
		break
	}
	return &output.Error{Code: output.CodeUnreachable, Err: &worded{fmt.Sprintf("%s %s: %s", doing, t.Shown, text), err}, Hint: hint}
}

// refused reports that nothing listens there, or that the network is in the way.
func refused(err error) bool {
	return errors.As(err, new(*net.OpError)) || errors.Is(err, context.DeadlineExceeded)
}

// HasQueues and HasRecords are nil when the place has them, else an error of usage that says what to give instead.
func (t Target) HasQueues(flag string) error {
	if t.kind.noQueues == "" {
		return nil
	}
	return output.Usage("--%s %s: %s", flag, t.Shown, t.kind.noQueues).WithHint("--%s 'sqs://orders' or --%s 'sqlite:orders.db?queue=orders'", flag, flag)
}

// NamesQueue is HasQueues for a URL that has to be one queue's.
func (t Target) NamesQueue(flag string) error {
	if err := t.HasQueues(flag); err != nil || t.Queue != "" || !t.kind.namesQueue {
		return err
	}
	return output.Usage("--%s %s:// names no queue", flag, t.Scheme).WithHint("--%s '%s'", flag, t.kind.form)
}

// HasRecords is the counterpart of HasQueues for stores.
func (t Target) HasRecords() error {
	if t.kind.noRecords == "" {
		return nil
	}
	err := output.Usage("--store is needed with %s: %s", t.Shown, t.kind.noRecords)
	if t.nats != nil || t.rabbit != nil || t.kafka != nil {
		return err.WithHint("--store 'postgres://user@host/database', or for one machine --store 'sqlite:records.db'")
	}
	return err.WithHint("--store 'dynamodb://semel-records' (semel migrate makes the table), or for one machine --store 'sqlite:records.db'")
}

// onlyQueue reads a query whose only parameter is the queue.
func (t *Target) onlyQueue(flag, rawQuery string) error {
	q, err := url.ParseQuery(rawQuery)
	if err != nil {
		return output.Usage("--%s: query %q: %w", flag, output.Redact(rawQuery), err)
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if name != "queue" {
			return output.Usage("--%s: unknown query parameter %q (known: queue)", flag, name)
		}
	}
	return t.setQueue(flag, q["queue"])
}

// checkParams refuses parameters that are unknown, empty or given twice. hint is for unknown ones.
func checkParams(flag string, q url.Values, known []string, hint string) error {
	for _, name := range slices.Sorted(maps.Keys(q)) {
		switch {
		case !slices.Contains(known, name):
			meant := ""
			if n := nearest.Name(name, known, 3); n != "" {
				meant = ", did you mean " + n + "?"
			}
			err := output.Usage("--%s: unknown query parameter %q (known: %s%s)", flag, name, strings.Join(known, ", "), meant)
			err.Hint = hint
			return err
		case len(q[name]) > 1 || q.Get(name) == "":
			return output.Usage("--%s: query parameter %s must be given once, and not be empty", flag, name)
		}
	}
	return nil
}

// setQueue takes the values of the parameter queue; none leaves the name empty.
func (t *Target) setQueue(flag string, values []string) error {
	if len(values) == 0 {
		return nil
	}
	if len(values) > 1 || values[0] == "" {
		return output.Usage("--%s: query parameter queue must be given once, and not be empty", flag)
	}
	t.Queue = values[0]
	if len(t.Queue) > 200 || strings.ContainsFunc(t.Queue, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return output.Usage("--%s: queue name %q is longer than 200 bytes or has control characters", flag, t.Queue)
	}
	return nil
}

// Redact removes secrets from a setting, so that it can be shown. The result is a URL that works where the password comes from
// elsewhere. If in doubt Redact removes too much; it does not show what it cannot parse.
func Redact(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	switch {
	case keywordDSN(raw):
		return "(not shown)"
	case !ok:
		name, rest, named := strings.Cut(raw, ":")
		switch {
		case named && isPostgres(name):
			return name + ":(not shown)"
		case named && strings.Contains(rest, "@") && !strings.EqualFold(name, "sqlite"):
			return "(not shown)" // user:password@host
		}
		return output.Redact(raw)
	case isPostgres(scheme):
		p, err := splitPostgres(raw)
		if err != nil {
			return scheme + "://(not shown)"
		}
		if !p.protected && len(p.passwords) == 0 {
			return raw
		}
		return p.join(false)
	}
	base, query, asked := strings.Cut(raw, "?")
	if OnAWS(raw) && asked && !knownQuery(query) {
		query = "(not shown)"
	}
	authority, _, _ := strings.Cut(rest, "/")
	place, _, _ := strings.Cut(rest, "?")
	if strings.LastIndexByte(place, '@') > len(authority) {
		return scheme + "://(not shown)" // a password with a slash in it, or a path with an @: who knows
	}
	if !asked {
		return output.Redact(base)
	}
	return output.Redact(base + "?" + query)
}

// Connects tells settings that say where something is: URLs, and connection strings of other programs.
func Connects(setting string) bool {
	return strings.Contains(setting, "://") || keywordDSN(setting) || isPostgres(strings.TrimRight(setting, ":")) ||
		strings.Contains(setting, ":") && strings.Contains(setting, "@")
}

// knownQuery tells a query that only has parameters of ours, and those whose value is filled in for each message.
func knownQuery(query string) bool {
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		known := slices.Contains(sqsKind.params, name) || slices.Contains(dynamoKind.params, name) || name == "queue"
		if value != "{key}" && value != "{effect_key}" && (!known || strings.Contains(value, "@")) {
			return false
		}
	}
	return true
}

func isPostgres(scheme string) bool {
	return slices.Contains(postgresKind.schemes, strings.ToLower(scheme))
}

var keywords = regexp.MustCompile(`(?i)^\s*(host|hostaddr|port|dbname|user|password|passfile|service|sslmode|server|data source|` +
	`database|initial catalog|user id|uid|pwd)\s*=`)

// keywordDSN tells connection strings such as "host=db user=shop password=…": drivers take them, semel takes URLs.
func keywordDSN(raw string) bool { return keywords.MatchString(raw) }
