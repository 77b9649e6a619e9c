package open

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/adapters/redis"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

var redisKind = &kind{
	schemes: []string{"redis", "rediss", "redis+sentinel", "rediss+sentinel"}, parse: parseRedis, open: openRedis, explain: redisError, create: createRedis,
	namesQueue: true, form: redisQueueForm,
	// There is no schema: migrate shows that records could be kept there.
	migrate: func(ctx context.Context, t Target) (from, to int, err error) {
		db, err := openRedis(ctx, t, Options{})
		if err != nil {
			return 0, 0, err
		}
		_, err = db.Store(ctx)
		return 0, 0, errors.Join(err, db.Close())
	},
	schema: func(Target) (string, error) {
		return "", output.Usage("--store redis:// has no schema: there is nothing to create").WithHint("semel work makes the keys it needs")
	},
}

// redisDB is a Redis with records and queues.
type redisDB struct {
	t      Target
	client goredis.UniversalClient
	o      redis.Options
	opened *redis.Store
}

func openRedis(_ context.Context, t Target, o Options) (Database, error) {
	p, err := splitRedis("store", *t.conn)
	if err != nil {
		return nil, err // not reached: it was parsed before
	}
	return &redisDB{t: t, client: p.client(o.Committers), o: redis.Options{Prefix: p.prefix, Shards: p.shards, ReadOnly: o.ReadOnly}}, nil
}

func createRedis(ctx context.Context, t Target, how NewQueue) (err error) {
	if how.MaxReceives != 0 || how.Retention != 0 {
		return output.Usage("a queue in Redis has neither --max-receives nor --message-retention: it keeps a message until it is handled").
			WithHint("leave them away: semel work --max-attempts counts attempts and keeps dead letters")
	}
	db, err := openRedis(ctx, t, Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	st, err := db.(*redisDB).open(ctx)
	if err != nil {
		return err
	}
	if err := st.CreateQueue(ctx, t.Queue, how.Visibility); err != nil {
		return redisError(t, "create", err)
	}
	return nil
}

// Queue opens a queue, which has to exist. Its visibility is the queue's own; New refuses another one.
func (d *redisDB) Queue(ctx context.Context, name string, _ time.Duration) (driver.Queue, error) {
	st, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	q, err := st.Queue(ctx, name)
	if err != nil {
		return nil, redisError(d.t, "open", err)
	}
	return q, nil
}

// Queues lists the queues with the prefix of the URL.
func (d *redisDB) Queues(ctx context.Context) ([]string, error) {
	st, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	names, err := st.Queues(ctx)
	if err != nil {
		return nil, redisError(d.t, "list the queues of", err)
	}
	return names, nil
}

// openServer bounds the first look at a server.
const openServer = 5 * time.Second

// Store opens the records.
func (d *redisDB) Store(ctx context.Context) (driver.Store, error) { return d.open(ctx) }

// open opens the records once: a store joins the queues that it opened.
func (d *redisDB) open(ctx context.Context) (*redis.Store, error) {
	if d.opened != nil {
		return d.opened, nil
	}
	first, cancel := context.WithTimeout(ctx, openServer)
	defer cancel()
	st, err := redis.Open(first, d.client, d.o)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, redisError(d.t, "open", err)
	}
	d.opened = st
	return st, nil
}

// Close closes the connections.
func (d *redisDB) Close() error { return d.client.Close() }

// redisError says why a server could not be used, and what to do about it.
func redisError(t Target, doing string, err error) error {
	text := strings.TrimPrefix(err.Error(), "open redis: ")
	has := func(text, hint string) meaning { return meaning{strings.Contains(err.Error(), text), "", hint, nil} }
	return t.unreachable(doing, "redis", &worded{text, err},
		meaning{errors.Is(err, redis.ErrNoQueue), "", fmt.Sprintf("make it with semel queue create --queue '%s'", t.Shown), ErrNoQueue},
		has("NOAUTH", redisAuth), has("WRONGPASS", redisAuth),
		has("NOPERM", "the user needs the commands that docs/adapters.md lists (ACL SETUSER)"),
		has("unknown command", "semel needs EVALSHA, EVAL and SCRIPT under their own names (rename-command)"),
		has("READONLY", "this is a replica: name the master, or the sentinels (redis+sentinel://host:26379?master=NAME)"),
		has("cluster support disabled", "leave cluster=on away"),
		has("MOVED", "cluster=on"),
		has("Shards", "prefix= and shards= in the URL"), has("Prefix", "prefix= and shards= in the URL"),
		has("", "check that the server runs and listens there (redis-cli -h … ping), and host and port of the URL"))
}

const redisAuth = "set REDISCLI_AUTH to the password, and the user in the URL (redis://user@host:6379)"

// Redis makes a client for the URL of a Redis. It connects with its first command.
func Redis(flag, raw string) (goredis.UniversalClient, error) {
	p, err := splitRedis(flag, raw)
	if err != nil {
		return nil, err
	}
	return p.client(1), nil
}

// RedisPrefix is how the keys begin of a URL of Redis.
func RedisPrefix(raw string) (string, error) {
	p, err := splitRedis("store", raw)
	return cmp.Or(p.prefix, "semel"), err
}

// WithRedisPrefix is the URL with another prefix.
func WithRedisPrefix(raw, prefix string) (string, error) {
	base, query, _ := strings.Cut(raw, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return "", err
	}
	q.Set("prefix", prefix)
	return base + "?" + q.Encode(), nil
}

const (
	redisForm      = "redis://user@host:6379/0?prefix=semel"
	redisQueueForm = "redis://user@host:6379?queue=orders"
)

// redisParams are the parameters of a URL of Redis.
var redisParams = []string{"queue", "prefix", "shards", "cluster", "master"}

// redisPlace is what a URL of Redis says. Its user and password are "" where they come from elsewhere: REDISCLI_AUTH, as redis-cli
// reads it.
type redisPlace struct {
	servers

	tls, sentinel, cluster bool
	db, shards             int
	prefix, master         string
}

func parseRedis(flag, raw string, t *Target) error {
	p, err := splitRedis(flag, raw)
	if err != nil {
		return err
	}
	t.conn, t.Shown = &raw, p.String()
	t.place = fmt.Sprintf("redis %v %d %s %s", p.hosts, p.db, p.master, p.prefix)
	return t.setQueue(flag, p.params["queue"])
}

// splitRedis reads a URL. Errors show no password.
func splitRedis(flag, raw string) (p redisPlace, err error) {
	scheme, _, _ := strings.Cut(strings.ToLower(raw), ":")
	p.tls, p.sentinel = strings.HasPrefix(scheme, "rediss"), strings.HasSuffix(scheme, "+sentinel")
	form, port := redisForm, "6379"
	if flag == "queue" {
		form = redisQueueForm
	}
	if p.sentinel {
		port = "26379"
	}
	if p.servers, err = parseServers(flag, raw, form, port, "number of a database"); err != nil {
		return p, err
	}
	if err := checkParams(flag, p.params, redisParams, "the password belongs into REDISCLI_AUTH"); err != nil {
		return p, err
	}
	if problem := p.read(); problem != "" {
		return p, output.Usage("--%s: %s", flag, problem).WithHint("--%s '%s'", flag, form)
	}
	return p, nil
}

// read takes path and parameters, and returns what is wrong with them.
func (p *redisPlace) read() (problem string) {
	var err error
	if p.path != "" {
		if p.db, err = strconv.Atoi(p.path); err != nil || p.db < 0 {
			return "its path is no number of a database"
		}
	}
	for name := range p.params {
		if strings.ContainsFunc(p.params.Get(name), func(r rune) bool { return r <= ' ' || r == 0x7f || r == '{' || r == '}' }) {
			return "query parameter " + name + " has a brace, a space or a control character"
		}
	}
	p.prefix, p.master = p.params.Get("prefix"), p.params.Get("master")
	if text := p.params.Get("shards"); text != "" {
		if p.shards, err = strconv.Atoi(text); err != nil || p.shards < 1 || p.shards > 1024 {
			return "shards is a number from 1 to 1024"
		}
	}
	on := p.params.Get("cluster")
	p.cluster = on == "on"
	switch {
	case on != "" && on != "on" && on != "off":
		return "cluster is on or off"
	case p.sentinel != (p.master != ""):
		return "redis+sentinel:// and master= belong together: master=NAME is what the sentinels call it"
	case p.cluster && (p.sentinel || p.db != 0):
		return "cluster=on has neither sentinels nor a number of a database"
	case len(p.hosts) > 1 && !p.cluster && !p.sentinel:
		return "several hosts are a cluster (cluster=on) or sentinels (redis+sentinel://)"
	}
	return ""
}

// String is the URL without its password.
func (p redisPlace) String() string {
	out := "redis"
	if p.tls {
		out = "rediss"
	}
	if p.sentinel {
		out += "+sentinel"
	}
	out += "://"
	if p.user != "" {
		out += url.User(p.user).String() + "@"
	}
	out += strings.Join(p.hosts, ",")
	if !p.cluster {
		out += fmt.Sprintf("/%d", p.db)
	}
	if len(p.params) > 0 {
		out += "?" + p.params.Encode()
	}
	return out
}

// client makes the client. It connects with the first command.
func (p redisPlace) client(committers int) goredis.UniversalClient {
	o := &goredis.UniversalOptions{
		Addrs: p.hosts, DB: p.db, MasterName: p.master, IsClusterMode: p.cluster, Username: p.user, Password: p.password,
		ContextTimeoutEnabled: true, MaxRetries: 1, PoolSize: 8 + 4*max(committers, 1), ClientName: "semel",
	}
	if o.Password == "" {
		o.Password = os.Getenv("REDISCLI_AUTH")
	}
	if p.sentinel {
		o.SentinelUsername, o.SentinelPassword = p.user, o.Password
	}
	if p.tls {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return goredis.NewUniversalClient(o)
}
