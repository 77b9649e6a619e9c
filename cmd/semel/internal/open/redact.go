package open

import (
	"net/url"
	"slices"
	"strings"
)

// Redact takes the passwords out of a URL: what is left is a URL that works where the password comes from elsewhere. It
// rather takes too much than too little; what cannot be told apart is not shown at all.
func Redact(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		if kind, _, ok := strings.Cut(raw, ":"); ok && isPostgres(kind) {
			return kind + ":(not shown)"
		}
		return raw
	}
	if isPostgres(scheme) {
		p, err := splitPostgres(raw)
		if err != nil {
			return scheme + "://(not shown)"
		}
		if !p.protected && len(p.passwords) == 0 {
			return raw
		}
		return p.join(false)
	}
	if OnAWS(raw) {
		base, query, _ := strings.Cut(raw, "?")
		for part := range strings.SplitSeq(query, "&") {
			if name, _, _ := strings.Cut(part, "="); secretParam(name) {
				raw = base + "?(not shown)"
			}
		}
	}
	if !strings.Contains(rest, "@") {
		return raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.User == nil && strings.Contains(u.Host+u.Path, "@") {
		return scheme + "://(not shown)"
	}
	if _, has := u.User.Password(); !has {
		return raw
	}
	u.User = url.User(u.User.Username())
	return u.String()
}

func isPostgres(scheme string) bool {
	return slices.Contains(postgresKind.schemes, strings.ToLower(scheme))
}
