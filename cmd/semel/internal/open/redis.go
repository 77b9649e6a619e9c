package open

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/adapters/redis"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

var redisKind = &kind{
	schemes: []string{"redis", "rediss", "redis+sentinel", "rediss+sentinel"}, parse: parseRedis, open: openRedis, create: createRedis,
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
	p, err := splitRedis(*t.conn)
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
	if errors.Is(err, redis.ErrNoQueue) {
		err = errors.Join(ErrNoQueue, err)
	}
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
	hint := "check that the server runs and listens there (redis-cli -h … ping), and host and port of the URL"
	switch {
	case errors.Is(err, redis.ErrNoQueue):
		hint = fmt.Sprintf("make it with semel queue create --queue '%s'", t.Shown)
	case strings.Contains(text, "NOAUTH"), strings.Contains(text, "WRONGPASS"):
		hint = "set REDISCLI_AUTH to the password, and the user in the URL (redis://user@host:6379)"
	case strings.Contains(text, "NOPERM"):
		hint = "the user needs the commands that docs/adapters.md lists (ACL SETUSER)"
	case strings.Contains(text, "unknown command"):
		hint = "semel needs EVALSHA, EVAL and SCRIPT under their own names (rename-command)"
	case strings.Contains(text, "READONLY"):
		hint = "this is a replica: name the master, or the sentinels (redis+sentinel://host:26379?master=NAME)"
	case strings.Contains(text, "cluster support disabled"):
		hint = "leave cluster=on away"
	case strings.Contains(text, "MOVED"):
		hint = "cluster=on"
	case strings.Contains(text, "Shards") || strings.Contains(text, "Prefix"):
		hint = "prefix= and shards= in the URL"
	}
	e := output.Unreachable("%s %s: %w", doing, t.Shown, &worded{text, err})
	return e.WithHint("%s", hint)
}

// Redis makes a client for the URL of a Redis. It connects with its first command.
func Redis(flag, raw string) (goredis.UniversalClient, error) {
	if _, err := Parse(flag, raw); err != nil {
		return nil, err
	}
	p, err := splitRedis(raw)
	return p.client(1), err
}

// RedisPrefix is how the keys begin of a URL of Redis.
func RedisPrefix(raw string) (string, error) {
	p, err := splitRedis(raw)
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

// redisPlace is what a URL of Redis says.
type redisPlace struct {
	tls, sentinel, cluster bool
	// user and password are "" where they come from elsewhere: REDISCLI_AUTH, as redis-cli reads it.
	user, password string
	addrs          []string
	db, shards     int
	prefix, master string
	queue          string
}

func parseRedis(flag, raw string, t *Target) error {
	p, err := splitRedis(raw)
	form := redisForm
	if flag == "queue" {
		form = redisQueueForm
	}
	if err != nil {
		return output.Usage("--%s is not a URL of the form %s: %w", flag, form, err).WithHint("--%s '%s'", flag, form)
	}
	if p.queue != "" {
		if err := t.setQueue(flag, []string{p.queue}); err != nil {
			return err
		}
	}
	t.conn, t.Shown = &raw, p.String()
	t.place = fmt.Sprintf("redis %v %d %s %s", p.addrs, p.db, p.master, p.prefix)
	return nil
}

// splitRedis reads a URL. net/url refuses several hosts with ports, so it gets the parts. Errors show no password.
func splitRedis(raw string) (p redisPlace, err error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || strings.Contains(raw, "#") {
		return p, errors.New("it needs :// and has no #")
	}
	scheme = strings.ToLower(scheme)
	p.tls, p.sentinel = strings.HasPrefix(scheme, "rediss"), strings.HasSuffix(scheme, "+sentinel")
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		u, err := url.Parse("redis://" + authority[:at+1] + "h")
		if err != nil {
			return p, errors.New("its user or password has a character that has to be written as %XX")
		}
		p.user = u.User.Username()
		p.password, _ = u.User.Password()
		authority = authority[at+1:]
	}
	if err := p.hosts(authority); err != nil {
		return p, err
	}
	if path != "" {
		if p.db, err = strconv.Atoi(path); err != nil || p.db < 0 {
			return p, errors.New("its path is no number of a database")
		}
	}
	return p, p.params(query)
}

func (p *redisPlace) hosts(authority string) error {
	port := "6379"
	if p.sentinel {
		port = "26379"
	}
	for host := range strings.SplitSeq(authority, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		name, n, err := net.SplitHostPort(host)
		if number, bad := strconv.Atoi(n); err != nil || bad != nil || number < 1 || number > 65535 || strings.ContainsAny(name, " @/\\") {
			return errors.New("one of its hosts is no host or host:port")
		}
		if name == "" {
			host = net.JoinHostPort("127.0.0.1", n)
		}
		p.addrs = append(p.addrs, host)
	}
	return nil
}

func (p *redisPlace) params(query string) error {
	q, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("its query cannot be read: write % as %25 and & as %26")
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		value := q.Get(name)
		switch {
		case output.SecretParam(name):
			return fmt.Errorf("parameter %q: the password belongs into REDISCLI_AUTH", name)
		case !slices.Contains(redisParams, name):
			return fmt.Errorf("unknown query parameter %q (known: %s)", name, strings.Join(redisParams, ", "))
		case len(q[name]) > 1 || value == "":
			return fmt.Errorf("query parameter %s must be given once, and not be empty", name)
		case strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '{' || r == '}' }):
			return fmt.Errorf("query parameter %s has a brace, a space or a control character", name)
		}
	}
	p.queue, p.prefix, p.master = q.Get("queue"), q.Get("prefix"), q.Get("master")
	if text := q.Get("shards"); text != "" {
		if p.shards, err = strconv.Atoi(text); err != nil || p.shards < 1 || p.shards > 1024 {
			return errors.New("shards is a number from 1 to 1024")
		}
	}
	switch on := q.Get("cluster"); on {
	case "", "off":
	case "on":
		p.cluster = true
	default:
		return errors.New("cluster is on or off")
	}
	switch {
	case p.sentinel != (p.master != ""):
		return errors.New("redis+sentinel:// and master= belong together: master=NAME is what the sentinels call it")
	case p.cluster && (p.sentinel || p.db != 0):
		return errors.New("cluster=on has neither sentinels nor a number of a database")
	case len(p.addrs) > 1 && !p.cluster && !p.sentinel:
		return errors.New("several hosts are a cluster (cluster=on) or sentinels (redis+sentinel://)")
	}
	return nil
}

// String is the URL without its password.
func (p redisPlace) String() string {
	scheme, q := "redis", url.Values{}
	if p.tls {
		scheme = "rediss"
	}
	if p.sentinel {
		scheme += "+sentinel"
	}
	if p.user != "" {
		scheme += "://" + url.User(p.user).String() + "@"
	} else {
		scheme += "://"
	}
	for name, value := range map[string]string{"queue": p.queue, "prefix": p.prefix, "master": p.master} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if p.shards > 0 {
		q.Set("shards", strconv.Itoa(p.shards))
	}
	out := fmt.Sprintf("%s%s/%d", scheme, strings.Join(p.addrs, ","), p.db)
	if p.cluster {
		q.Set("cluster", "on")
		out = strings.TrimSuffix(out, "/0")
	}
	if len(q) > 0 {
		out += "?" + q.Encode()
	}
	return out
}

// client makes the client. It connects with the first command.
func (p redisPlace) client(committers int) goredis.UniversalClient {
	o := &goredis.UniversalOptions{
		Addrs: p.addrs, DB: p.db, MasterName: p.master, IsClusterMode: p.cluster, Username: p.user, Password: p.password,
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
