package open

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// servers is what a URL says of the servers of one cluster. Its password is never printed.
type servers struct {
	hosts          []string
	user, password string
	path           string
	params         url.Values
}

// parseServers reads SCHEME://user:password@host:port,host2?param=value. net/url does not read several hosts. path is what the
// scheme calls the path of its URLs; "" = they have none. Redis alone knows passwords without a user.
func parseServers(flag, raw, form, port, path string) (p servers, err error) {
	_, rest, ok := strings.Cut(raw, "://")
	escaped := "user or password"
	if path != "" {
		escaped = "user, password or " + path
	}
	bad := output.Usage("--%s is not a URL of the form %s", flag, form).WithHint("write / ? # @ : , of a %s as %%2F %%3F %%23 %%40 %%3A %%2C", escaped)
	if !ok || strings.Contains(raw, "#") {
		return p, bad
	}
	rest, query, _ := strings.Cut(rest, "?")
	if path == "" {
		rest = strings.TrimSuffix(rest, "/")
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		user, password, _ := strings.Cut(rest[:i], ":")
		var err1, err2 error
		p.user, err1 = url.PathUnescape(user)
		p.password, err2 = url.PathUnescape(password)
		if rest = rest[i+1:]; err1 != nil || err2 != nil || p.user == "" && !strings.HasPrefix(form, "redis") || strings.ContainsAny(user+password, "/@") {
			return p, bad
		}
	}
	hosts, tail, more := strings.Cut(rest, "/")
	if p.path, err = url.PathUnescape(tail); err != nil || more && path == "" || strings.ContainsAny(tail, "/@") || !hostList.MatchString(hosts) {
		return p, bad
	}
	for _, h := range strings.Split(hosts, ",") {
		h = cmp.Or(h, "127.0.0.1")
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

// tlsConfig reads the files that tls_ca=, tls_cert= and tls_key= name.
func (p *servers) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := p.params.Get("tls_ca"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("tls_ca=: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls_ca=%s has no certificate", file)
		}
	}
	if cert, key := p.params.Get("tls_cert"), p.params.Get("tls_key"); cert+key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("tls_cert= and tls_key=: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// hasTLS reports that the URL names such a file.
func (p *servers) hasTLS() bool {
	return p.params.Has("tls_ca") || p.params.Has("tls_cert") || p.params.Has("tls_key")
}

// createHint is the command that makes the queue of a URL. It has no password: variable is where the command reads that.
func (p servers) createHint(t Target, variable string) string {
	scheme, _, _ := strings.Cut(t.Shown, "://")
	at, params := strings.Join(p.hosts, ","), maps.Clone(p.params)
	if p.path != "" {
		at += "/" + url.PathEscape(p.path)
	}
	if p.user != "" {
		at = url.PathEscape(p.user) + "@" + at
	}
	maps.DeleteFunc(params, func(_ string, v []string) bool { return strings.Contains(v[0], "@") }) // a URL with another password
	params.Set("queue", t.QueueName())
	hint := fmt.Sprintf("make it with semel queue create --queue '%s://%s?%s'", scheme, at, params.Encode())
	if p.user != "" && p.password != "" {
		hint += ", and the password of the URL in " + variable
	}
	return hint
}
