package open

import (
	"regexp"
	"slices"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

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
