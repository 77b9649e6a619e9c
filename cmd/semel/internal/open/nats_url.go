package open

import (
	"net"
	"net/url"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/semel-dev/semel/adapters/nats"
	"github.com/semel-dev/semel/cmd/semel/internal/nearest"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

const natsForm = "nats://user@host:4222?queue=ORDERS"

var natsParams = []string{
	"queue", "consumer", "subject", "wait", "dead_letters", "dedup", "max_deliver", "monitor", "sync", "domain", "replicas",
	"creds", "nkey", "tls", "tls_ca", "tls_cert", "tls_key",
}

// natsPlace is what a URL of NATS says. Its password is never printed.
type natsPlace struct {
	hosts          []string
	user, password string
	params         url.Values
}

// parseNATS reads nats://user:password@host:4222,host2?queue=STREAM. net/url does not read several hosts.
func parseNATS(flag, raw string, t *Target) error {
	_, rest, ok := strings.Cut(raw, "://")
	bad := output.Usage("--%s is not a URL of the form %s", flag, natsForm).WithHint("write / ? # @ : , of a user or password as %%2F %%3F %%23 %%40 %%3A %%2C")
	if !ok || strings.Contains(raw, "#") {
		return bad
	}
	rest, query, _ := strings.Cut(rest, "?")
	rest = strings.TrimSuffix(rest, "/")
	p := &natsPlace{}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		user, password, _ := strings.Cut(rest[:i], ":")
		var err1, err2 error
		p.user, err1 = url.PathUnescape(user)
		p.password, err2 = url.PathUnescape(password)
		if rest = rest[i+1:]; err1 != nil || err2 != nil || p.user == "" || strings.ContainsAny(user+password, "/@") {
			return bad
		}
	}
	if strings.ContainsAny(rest, "/@") || !hostList.MatchString(rest) {
		return bad
	}
	for _, h := range strings.Split(rest, ",") {
		if h == "" {
			h = "127.0.0.1"
		}
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), "4222")
		}
		p.hosts = append(p.hosts, h)
	}
	var err error
	if p.params, err = url.ParseQuery(query); err != nil {
		return output.Usage("--%s: its query cannot be read: write %% as %%25 and & as %%26", flag)
	}
	if err := p.check(flag); err != nil {
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

// check refuses parameters that are unknown, empty or given twice.
func (p *natsPlace) check(flag string) error {
	names := make([]string, 0, len(p.params))
	for name := range p.params {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		switch {
		case !slices.Contains(natsParams, name):
			meant := ""
			if n := nearest.Name(name, natsParams, 3); n != "" {
				meant = ", did you mean " + n + "?"
			}
			return output.Usage("--%s: unknown query parameter %q (known: %s%s)", flag, name, strings.Join(natsParams, ", "), meant).
				WithHint("credentials are taken from creds=FILE, nkey=FILE, NATS_PASSWORD or NATS_TOKEN")
		case len(p.params[name]) > 1 || p.params.Get(name) == "":
			return output.Usage("--%s: query parameter %s must be given once, and not be empty", flag, name)
		}
	}
	return nil
}

// options are the adapter's, for the queue that the URL names.
func (p *natsPlace) options(flag string) (o nats.Options, err error) {
	o = nats.Options{
		Consumer: p.params.Get("consumer"), Subject: p.params.Get("subject"), Bucket: p.params.Get("dead_letters"), Domain: p.params.Get("domain"),
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
		"dedup":       {&o.Dedup, []string{"on", "true", "1"}, "dedup=on or dedup=off"},
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
