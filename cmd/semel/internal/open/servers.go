package open

import (
	"net"
	"net/url"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// servers is what a URL says of the servers of one cluster. Its password is never printed.
type servers struct {
	hosts          []string
	user, password string
	params         url.Values
}

// parseServers reads SCHEME://user:password@host:port,host2?param=value. net/url does not read several hosts.
func parseServers(flag, raw, form, port string) (p servers, err error) {
	_, rest, ok := strings.Cut(raw, "://")
	bad := output.Usage("--%s is not a URL of the form %s", flag, form).WithHint("write / ? # @ : , of a user or password as %%2F %%3F %%23 %%40 %%3A %%2C")
	if !ok || strings.Contains(raw, "#") {
		return p, bad
	}
	rest, query, _ := strings.Cut(rest, "?")
	rest = strings.TrimSuffix(rest, "/")
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		user, password, _ := strings.Cut(rest[:i], ":")
		var err1, err2 error
		p.user, err1 = url.PathUnescape(user)
		p.password, err2 = url.PathUnescape(password)
		if rest = rest[i+1:]; err1 != nil || err2 != nil || p.user == "" || strings.ContainsAny(user+password, "/@") {
			return p, bad
		}
	}
	if strings.ContainsAny(rest, "/@") || !hostList.MatchString(rest) {
		return p, bad
	}
	for _, h := range strings.Split(rest, ",") {
		if h == "" {
			h = "127.0.0.1"
		}
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), port)
		}
		p.hosts = append(p.hosts, h)
	}
	if p.params, err = url.ParseQuery(query); err != nil {
		return p, output.Usage("--%s: its query cannot be read: write %% as %%25 and & as %%26", flag)
	}
	return p, nil
}
