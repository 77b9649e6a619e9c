package open

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/adapters/rabbitmq"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/ops"
)

const rabbitForm = "amqp://user@host:5672/vhost?queue=orders"

var rabbitKind = &kind{
	schemes: []string{"amqp", "amqps"}, parse: parseRabbit, open: openRabbit, explain: rabbitError, namesQueue: true, name: "rabbitmq", form: rabbitForm,
	noRecords: "the adapter of RabbitMQ keeps no records", create: createRabbit,
}

var rabbitParams = []string{"queue", "prefetch", "wait", "type", "management", "consumer_timeout", "tls_ca", "tls_cert", "tls_key"}

// rabbitPlace is what a URL of RabbitMQ says.
type rabbitPlace struct {
	servers

	vhost string
	tls   bool
}

// parseRabbit reads amqp://user:password@host:5672,host2/vhost?queue=NAME.
func parseRabbit(flag, raw string, t *Target) error {
	scheme, _, _ := strings.Cut(raw, "://")
	port, secure := "5672", strings.EqualFold(scheme, "amqps")
	if secure {
		port = "5671"
	}
	servers, err := parseServers(flag, raw, rabbitForm, port, "vhost")
	if err != nil {
		return err
	}
	if servers.user == "" {
		servers.user, servers.password = "guest", "guest"
	}
	p := &rabbitPlace{servers, cmp.Or(servers.path, "/"), secure}
	if err := checkParams(flag, p.params, rabbitParams, "the password is in the URL or in RABBITMQ_PASSWORD"); err != nil {
		return err
	}
	if err := t.setQueue(flag, p.params["queue"]); err != nil {
		return err
	}
	if _, err := p.options(flag); err != nil {
		return err
	}
	t.rabbit, t.Shown = p, strings.ToLower(scheme)+"://"+strings.Join(p.hosts, ",")
	if p.vhost != "/" {
		t.Shown += "/" + url.PathEscape(p.vhost)
	}
	t.place = t.Shown + " " + p.user
	if t.Queue != "" {
		t.Shown += "?queue=" + t.Queue
	}
	return nil
}

// options are the adapter's.
func (p *rabbitPlace) options(flag string) (o rabbitmq.Options, err error) {
	for name, f := range map[string]struct {
		set         *time.Duration
		least, most time.Duration
		hint        string
	}{
		"wait":             {&o.Wait, 10 * time.Millisecond, time.Minute, "wait=5s: a duration from 10ms to 1m"},
		"consumer_timeout": {&o.ConsumerTimeout, time.Minute, 365 * 24 * time.Hour, "consumer_timeout=30m: that of the server, at least 1m"},
	} {
		if raw := p.params.Get(name); raw != "" {
			if *f.set, err = time.ParseDuration(raw); err != nil || *f.set < f.least || *f.set > f.most {
				return o, output.Usage("--%s: %s=%s is out of range", flag, name, raw).WithHint("%s", f.hint)
			}
		}
	}
	if raw := p.params.Get("prefetch"); raw != "" {
		if o.Prefetch, err = strconv.Atoi(raw); err != nil || o.Prefetch < 1 || o.Prefetch > 65535 {
			return o, output.Usage("--%s: prefetch=%s is out of range", flag, raw).WithHint("prefetch=200: 1 to 65535")
		}
	}
	if raw := p.params.Get("type"); raw != "" && raw != "quorum" && raw != "classic" {
		return o, output.Usage("--%s: type=%s is unknown", flag, raw).WithHint("type=quorum or type=classic")
	}
	if raw := p.params.Get("management"); raw != "" {
		if !output.IsHTTP(raw) {
			raw = "http://" + raw
		}
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" || u.User != nil {
			return o, output.Usage("--%s: management= is no URL of the management plugin", flag).
				WithHint("management=http://host:15672, with the user and password of the rest of the URL")
		}
		u.User = url.UserPassword(p.user, p.secret())
		o.Management = u.String()
	}
	return o, nil
}

func (p *rabbitPlace) secret() string { return cmp.Or(os.Getenv("RABBITMQ_PASSWORD"), p.password) }

// dial connects to the first host that can be reached.
func (p *rabbitPlace) dial(t Target) (rabbitmq.Dial, error) {
	config := amqp.Config{
		SASL: []amqp.Authentication{&amqp.PlainAuth{Username: p.user, Password: p.secret()}}, Vhost: p.vhost,
		Dial: amqp.DefaultDial(10 * time.Second), Heartbeat: 10 * time.Second, Properties: amqp.NewConnectionProperties(),
	}
	config.Properties.SetClientConnectionName("semel")
	scheme := "amqp://"
	if p.tls {
		scheme = "amqps://"
		var err error
		if config.TLSClientConfig, err = p.tlsConfig(); err != nil {
			return nil, output.Usage("%s: %w", t.Shown, err).WithHint("tls_ca=, tls_cert= and tls_key= name files in PEM")
		}
	} else if p.hasTLS() {
		return nil, output.Usage("%s: tls_ca=, tls_cert= and tls_key= are for amqps://", t.Shown)
	}
	return func() (conn *amqp.Connection, err error) {
		for _, h := range p.hosts {
			c := config
			if p.tls {
				c.TLSClientConfig = config.TLSClientConfig.Clone()
				c.TLSClientConfig.ServerName, _, _ = net.SplitHostPort(h)
			}
			if conn, err = amqp.DialConfig(scheme+h, c); err == nil || errors.Is(err, amqp.ErrCredentials) || errors.Is(err, amqp.ErrVhost) {
				return conn, err
			}
		}
		return nil, err
	}, nil
}

// rabbitDB is the queues of a virtual host that were opened.
type rabbitDB struct {
	noRecords
	dial rabbitmq.Dial
	open map[string]*rabbitmq.Queue
}

func openRabbit(_ context.Context, t Target, _ Options) (Database, error) {
	dial, err := t.rabbit.dial(t)
	if err != nil {
		return nil, err
	}
	return &rabbitDB{noRecords{t}, dial, map[string]*rabbitmq.Queue{}}, nil
}

// Queue opens a queue, which must exist. A delivery has no visibility timeout.
func (d *rabbitDB) Queue(ctx context.Context, name string, _ time.Duration) (driver.Queue, error) {
	return d.queue(ctx, name)
}

func (d *rabbitDB) queue(ctx context.Context, name string) (*rabbitmq.Queue, error) {
	if q := d.open[name]; q != nil {
		return q, nil
	}
	o, err := d.t.rabbit.options("queue")
	if err != nil {
		return nil, err
	}
	q, err := rabbitmq.Open(ctx, d.dial, name, o)
	if err != nil {
		return nil, rabbitError(d.t, "open", err)
	}
	d.open[name] = q
	return q, nil
}

func createRabbit(ctx context.Context, t Target, how NewQueue) error {
	if how != (NewQueue{}) {
		return output.Usage("a queue of RabbitMQ has no visibility, no retention and no limit of receives").
			WithHint("leave --default-visibility, --max-receives and --message-retention away: semel work --max-attempts counts attempts")
	}
	dial, err := t.rabbit.dial(t)
	if err != nil {
		return err
	}
	if err := rabbitmq.Create(ctx, dial, t.Queue, rabbitmq.CreateOptions{Classic: t.rabbit.params.Get("type") == "classic"}); err != nil {
		return rabbitError(t, "create", err)
	}
	return nil
}

// Queues lists the queue of the URL: AMQP lists no queues.
func (d *rabbitDB) Queues(context.Context) ([]string, error) {
	if d.t.Queue == "" {
		return nil, output.Usage("--queue %s names no queue, and AMQP lists none", d.t.Shown).WithHint("--queue '%s', or rabbitmqctl list_queues", rabbitForm)
	}
	return []string{d.t.Queue}, nil
}

func (d *rabbitDB) Close() error {
	var errs []error
	for _, q := range d.open {
		errs = append(errs, q.Close())
	}
	return errors.Join(errs...)
}

// Examine reports how the queue of the URL is kept. What can lose messages is in the queue's features.
func (d *rabbitDB) Examine(ctx context.Context, _ Options) ([]ops.Check, error) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	q, err := d.queue(ctx, d.t.QueueName())
	if err != nil {
		return nil, err
	}
	s := q.Settings()
	o, err := d.t.rabbit.options("queue")
	return rabbitFacts(d.t.QueueName(), &s, cmp.Or(o.Prefetch, rabbitmq.DefaultPrefetch)), err
}

func rabbitFacts(queue string, s *rabbitmq.Settings, prefetch int) []ops.Check {
	var f Facts
	f.Add(ops.LevelOK, "queue type", "", "%s: %s, prefetch %d; RabbitMQ %s", queue, cmp.Or(s.Type, "unknown"), prefetch, s.Version)
	f.When(!s.Managed, ops.LevelWarning, "policies", "management=http://host:15672 in the URL, with a user that has the tag management",
		"policies can set a delivery limit, a TTL or a maximum length, and AMQP does not show them")
	f.When(s.AutoAck > 0, ops.LevelDanger, "consumers", "stop them, or give them a queue of their own",
		"%d consumers receive messages of this queue without acking them: those are lost when they crash", s.AutoAck)
	f.When(s.Managed && s.Type == "quorum" && len(s.Members) == 1, ops.LevelWarning, "members", "a cluster of three nodes (rabbitmq-queues grow)",
		"messages are on one machine: %s", strings.Join(s.Members, ", "))
	f.When(prefetch > 1000, ops.LevelWarning, "prefetch", "prefetch=200 in the URL",
		"every disconnect delivers up to %d messages again, and other workers do not get them before", prefetch)
	return f
}

// rabbitError says why a queue could not be used, and what to do about it.
func rabbitError(t Target, doing string, err error) error {
	p := t.rabbit.servers
	if p.user == "guest" { // also where the URL has none
		p.user = ""
	}
	return t.unreachable(doing, "rabbitmq", err,
		meaning{errors.Is(err, rabbitmq.ErrNotFound), "", p.createHint(t, "RABBITMQ_PASSWORD"), ErrNoQueue},
		meaning{errors.Is(err, amqp.ErrCredentials), "the server refuses the credentials",
			"check the user of the URL and RABBITMQ_PASSWORD; guest works on the server's own machine only", nil},
		meaning{errors.Is(err, amqp.ErrVhost), fmt.Sprintf("the user has no access to the virtual host %q", t.rabbit.vhost),
			"check the path of the URL, and rabbitmqctl set_permissions", nil},
		meaning{refused(err), "it cannot be reached: ", "check that a RabbitMQ server listens there, and host and port of the URL", nil})
}

// RemoveRabbitMQ deletes the queue of a URL and its delay queues. What does not exist is no error.
func RemoveRabbitMQ(ctx context.Context, raw string) error {
	t, err := Parse("queue", raw)
	if err != nil {
		return err
	}
	dial, err := t.rabbit.dial(t)
	if err != nil {
		return err
	}
	if err := rabbitmq.Delete(ctx, dial, t.Queue); err != nil {
		return rabbitError(t, "delete", err)
	}
	return nil
}
