package open

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semel-dev/semel/adapters/nats"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

var natsKind = &kind{
	schemes: []string{"nats"}, parse: parseNATS, open: openNATS, explain: natsError, namesQueue: true, form: natsForm,
	noRecords: "the adapter of NATS keeps no records", create: createNATS,
}

// natsDB is the streams of an account.
type natsDB struct {
	noRecords
	nc *natsclient.Conn
}

func openNATS(_ context.Context, t Target, _ Options) (Database, error) {
	nc, err := t.nats.connect(t)
	if err != nil {
		return nil, err
	}
	return &natsDB{noRecords{t}, nc}, nil
}

// connect connects as the URL says. What is secret may come from the variables that the nats command takes.
func (p *natsPlace) connect(t Target) (*natsclient.Conn, error) {
	// Errors that the server reports later are found in LastError; the client would print them.
	quiet := func(*natsclient.Conn, *natsclient.Subscription, error) {}
	opts := []natsclient.Option{natsclient.Name("semel"), natsclient.MaxReconnects(-1), natsclient.ErrorHandler(quiet),
		natsclient.ReconnectWait(250 * time.Millisecond)}
	if user := cmp.Or(p.user, os.Getenv("NATS_USER")); user != "" {
		opts = append(opts, natsclient.UserInfo(user, cmp.Or(p.password, os.Getenv("NATS_PASSWORD"))))
	} else if token := os.Getenv("NATS_TOKEN"); token != "" {
		opts = append(opts, natsclient.Token(token))
	}
	if file := cmp.Or(p.params.Get("creds"), os.Getenv("NATS_CREDS")); file != "" {
		opts = append(opts, natsclient.UserCredentials(file))
	}
	if file := cmp.Or(p.params.Get("nkey"), os.Getenv("NATS_NKEY")); file != "" {
		o, err := natsclient.NkeyOptionFromSeed(file)
		if err != nil {
			return nil, output.Usage("%s: nkey=%s: %w", t.Shown, file, err).WithHint("nkey= names a file with the seed of a user")
		}
		opts = append(opts, o)
	}
	if file := p.params.Get("tls_ca"); file != "" {
		opts = append(opts, natsclient.RootCAs(file))
	}
	if cert, key := p.params.Get("tls_cert"), p.params.Get("tls_key"); cert+key != "" {
		if cert == "" || key == "" {
			return nil, output.Usage("%s: tls_cert= and tls_key= belong together", t.Shown)
		}
		opts = append(opts, natsclient.ClientCert(cert, key))
	}
	scheme := "nats://"
	if on := p.params.Get("tls"); on != "" && on != "off" && on != "false" && on != "0" {
		scheme = "tls://"
	}
	// The client gives a server 2 seconds by default, which a busy machine exceeds; PostgreSQL gets as long.
	opts = append(opts, natsclient.Timeout(10*time.Second))
	nc, err := natsclient.Connect(scheme+strings.Join(p.hosts, ","+scheme), opts...)
	if err != nil {
		return nil, natsError(t, "connect to", err)
	}
	return nc, nil
}

// Queue opens a stream, which has to exist with its consumer. Its visibility is the consumer's own; New refuses another one.
func (d *natsDB) Queue(ctx context.Context, name string, _ time.Duration) (driver.Queue, error) {
	o, at, err := d.options(name)
	if err != nil {
		return nil, err
	}
	q, err := nats.Open(ctx, d.nc, name, o)
	if err != nil {
		return nil, natsError(at, "open", err)
	}
	return q, nil
}

// options are those of a stream: the subject of the URL belongs to the stream that it names.
func (d *natsDB) options(name string) (o nats.Options, at Target, err error) {
	o, err = d.t.nats.options("queue")
	at = d.t
	if name != d.t.Queue {
		o.Subject = ""
		at.Queue, at.Shown = name, "nats://"+strings.Join(d.t.nats.hosts, ",")+"?queue="+name
	}
	return o, at, err
}

func createNATS(ctx context.Context, t Target, how NewQueue) (err error) {
	if how.MaxReceives != 0 {
		return output.Usage("--max-receives is nothing for JetStream: a message that reaches MaxDeliver is delivered to nobody").
			WithHint("leave it away: semel work --max-attempts counts attempts and keeps dead letters")
	}
	o, err := t.nats.options("queue")
	if err != nil {
		return err
	}
	replicas := 0
	if raw := t.nats.params.Get("replicas"); raw != "" {
		if replicas, err = strconv.Atoi(raw); err != nil || replicas < 1 || replicas > 5 {
			return output.Usage("--queue: replicas=%s is out of range", raw).WithHint("replicas=1, 3 or 5")
		}
	}
	nc, err := t.nats.connect(t)
	if err != nil {
		return err
	}
	defer nc.Close()
	err = nats.Create(ctx, nc, t.Queue, nats.CreateOptions{Options: o, Visibility: how.Visibility, Retention: how.Retention, Replicas: replicas})
	if err != nil {
		return natsError(t, "create", err)
	}
	return nil
}

// Queues lists the streams of the account that have the consumer of the URL.
func (d *natsDB) Queues(ctx context.Context) (names []string, err error) {
	js, err := d.jetStream()
	if err != nil {
		return nil, err
	}
	consumer := cmp.Or(d.t.nats.params.Get("consumer"), nats.DefaultConsumer)
	list := js.StreamNames(ctx)
	for name := range list.Name() {
		if _, err := js.Consumer(ctx, name, consumer); err == nil {
			names = append(names, name)
		} else if !errors.Is(err, jetstream.ErrConsumerNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, natsError(d.t, "list the streams of", err)
		}
	}
	if err := list.Err(); err != nil {
		return nil, natsError(d.t, "list the streams of", err)
	}
	sort.Strings(names)
	return names, nil
}

func (d *natsDB) jetStream() (js jetstream.JetStream, err error) {
	if domain := d.t.nats.params.Get("domain"); domain != "" {
		js, err = jetstream.NewWithDomain(d.nc, domain)
	} else {
		js, err = jetstream.New(d.nc)
	}
	if err != nil {
		return nil, natsError(d.t, "open", err)
	}
	return js, nil
}

func (d *natsDB) Close() error {
	d.nc.Close()
	return nil
}

// natsError says why a stream could not be used, and what to do about it.
func natsError(t Target, doing string, err error) error {
	return t.unreachable(doing, "nats", err,
		meaning{errors.Is(err, nats.ErrNotFound), "", t.nats.servers.createHint(t, "NATS_PASSWORD"), ErrNoQueue},
		meaning{errors.Is(err, natsclient.ErrAuthorization) || errors.Is(err, natsclient.ErrAuthExpired), "the server refuses the credentials",
			"check the user of the URL with NATS_PASSWORD, or creds=, nkey= or NATS_TOKEN", nil},
		meaning{errors.Is(err, natsclient.ErrNoServers) || errors.Is(err, natsclient.ErrTimeout), "it cannot be reached: ",
			"check that a NATS server listens there, and host and port of the URL", nil},
		meaning{errors.Is(err, natsclient.ErrSecureConnRequired), "", "tls=on in the URL, and tls_ca=FILE where its authority is your own", nil})
}

// RemoveNATS deletes the stream of a URL. One that is not there is no error.
func RemoveNATS(ctx context.Context, raw string) error {
	t, err := Parse("queue", raw)
	if err != nil {
		return err
	}
	nc, err := t.nats.connect(t)
	if err != nil {
		return err
	}
	d := &natsDB{noRecords{t}, nc}
	defer d.nc.Close()
	js, err := d.jetStream()
	if err != nil {
		return err
	}
	if err := js.DeleteStream(ctx, t.Queue); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return natsError(t, "delete", err)
	}
	return nil
}

const natsForm = "nats://user@host:4222?queue=ORDERS"

var natsParams = []string{
	"queue", "consumer", "subject", "wait", "max_deliver", "monitor", "sync", "domain", "replicas",
	"creds", "nkey", "tls", "tls_ca", "tls_cert", "tls_key",
}

// natsPlace is what a URL of NATS says.
type natsPlace struct{ servers }

// parseNATS reads nats://user:password@host:4222,host2?queue=STREAM.
func parseNATS(flag, raw string, t *Target) error {
	servers, err := parseServers(flag, raw, natsForm, "4222", "")
	if err != nil {
		return err
	}
	p := &natsPlace{servers}
	if err := checkParams(flag, p.params, natsParams, "credentials are taken from creds=FILE, nkey=FILE, NATS_PASSWORD or NATS_TOKEN"); err != nil {
		return err
	}
	if err := t.setQueue(flag, p.params["queue"]); err != nil {
		return err
	}
	if _, err := p.options(flag); err != nil {
		return err
	}
	t.nats, t.place = p, "nats "+strings.Join(p.hosts, ",")+" "+p.user+" "+p.params.Get("domain")
	t.Shown = "nats://" + strings.Join(p.hosts, ",")
	if t.Queue != "" {
		t.Shown += "?queue=" + t.Queue
	}
	return nil
}

// options are the adapter's, for the queue that the URL names.
func (p *natsPlace) options(flag string) (o nats.Options, err error) {
	o = nats.Options{
		Consumer: p.params.Get("consumer"), Subject: p.params.Get("subject"), Domain: p.params.Get("domain"),
		Monitor: p.params.Get("monitor"),
	}
	if raw := p.params.Get("wait"); raw != "" {
		if o.Wait, err = time.ParseDuration(raw); err != nil || o.Wait < 10*time.Millisecond || o.Wait > time.Minute {
			return o, output.Usage("--%s: wait=%s is out of range", flag, raw).WithHint("wait=5s: a duration from 10ms to 1m")
		}
	}
	if o.Monitor != "" && !output.IsHTTP(o.Monitor) {
		o.Monitor = "http://" + o.Monitor
	}
	for name, f := range map[string]struct {
		set  *bool
		on   []string
		hint string
	}{
		"max_deliver": {&o.AcceptMaxDeliver, []string{"accept"}, "max_deliver=accept: the consumer may have a MaxDeliver"},
		"sync":        {&o.SyncAlways, []string{"always"}, "sync=always: sync_interval of every server of the stream is always"},
		"tls":         {new(bool), []string{"on", "true", "1"}, "tls=on or tls=off"},
	} {
		raw := p.params.Get(name)
		if *f.set = slices.Contains(f.on, raw); raw != "" && !*f.set && !slices.Contains([]string{"off", "false", "0"}, raw) {
			return o, output.Usage("--%s: %s=%s is unknown", flag, name, raw).WithHint("%s", f.hint)
		}
	}
	return o, nil
}
