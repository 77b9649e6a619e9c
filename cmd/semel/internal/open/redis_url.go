package open

import (
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

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

const redisForm = "redis://user@host:6379/0?prefix=semel"

// redisParams are the parameters of a URL of Redis.
var redisParams = []string{"prefix", "shards", "cluster", "master"}

// redisPlace is what a URL of Redis says.
type redisPlace struct {
	tls, sentinel, cluster bool
	// user and password are "" where they come from elsewhere: REDISCLI_AUTH, as redis-cli reads it.
	user, password string
	addrs          []string
	db, shards     int
	prefix, master string
}

func parseRedis(flag, raw string, t *Target) error {
	p, err := splitRedis(raw)
	if err != nil {
		return output.Usage("--%s is not a URL of the form %s: %w", flag, redisForm, err).WithHint("--%s '%s'", flag, redisForm)
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
		case name == "queue":
			return errors.New("parameter queue: semel keeps records in Redis, and no queues")
		case !slices.Contains(redisParams, name):
			return fmt.Errorf("unknown query parameter %q (known: %s)", name, strings.Join(redisParams, ", "))
		case len(q[name]) > 1 || value == "":
			return fmt.Errorf("query parameter %s must be given once, and not be empty", name)
		case strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '{' || r == '}' }):
			return fmt.Errorf("query parameter %s has a brace, a space or a control character", name)
		}
	}
	p.prefix, p.master = q.Get("prefix"), q.Get("master")
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
	for name, value := range map[string]string{"prefix": p.prefix, "master": p.master} {
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
