package output

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// notShown stands for what is secret.
const notShown = "(not shown)"

var (
	urlInText = regexp.MustCompile(`\b[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>` + "`" + `]+`)
	// pairs are name=value as in connection strings: host=db password='a b'.
	pairs = regexp.MustCompile(`(?i)\b(\w*(?:password|passwd|pwd|secret|api_?key|access_?key)\w*\s*=\s*)('(?:\\.|[^'\\])*'?|[^\s&;,"']+)`)
)

// Redact takes what is secret out of a text: user information and query of URLs, and passwords of connection strings. All
// errors, hints and log lines go through it; it rather takes too much than too little. Settings are shown with
// open.Redact, which knows the parameters of each kind of URL.
func Redact(text string) string {
	if strings.Contains(text, "://") {
		text = urlInText.ReplaceAllStringFunc(text, redactURL)
	}
	if strings.Contains(text, "=") {
		text = pairs.ReplaceAllString(text, "${1}"+notShown)
	}
	return text
}

// redactURL redacts one URL of a text.
func redactURL(raw string) string {
	scheme, rest, _ := strings.Cut(raw, "://")
	rest, query, asked := strings.Cut(rest, "?")
	host, path, _ := strings.Cut(rest, "/")
	if strings.Contains(path+query, "@") && strings.Contains(host, ":") && !strings.Contains(host, "@") {
		return scheme + "://" + notShown // perhaps a password with a / or ? in it
	}
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		rest = rest[i+1:]
		if name, _, protected := strings.Cut(host[:i], ":"); protected && !IsHTTP(raw) {
			rest = name + "@" + rest
		} else if !protected && !IsHTTP(raw) {
			rest = host[:i+1] + rest
		}
	}
	if !asked {
		return scheme + "://" + rest
	}
	if slices.ContainsFunc(strings.Split(query, "&"), func(part string) bool {
		name, value, _ := strings.Cut(part, "=")
		return strings.Contains(value, "://") || SecretParam(name) && value != "{key}" && value != "{effect_key}"
	}) {
		query = notShown
	}
	return scheme + "://" + rest + "?" + query
}

// IsHTTP tells URLs of HTTP, whose user information may be a token as well as a user.
func IsHTTP(raw string) bool {
	low := strings.ToLower(raw)
	return strings.HasPrefix(low, "https://") || strings.HasPrefix(low, "http://")
}

// SecretParam tells names of parameters that can only mean credentials, of whatever program.
func SecretParam(name string) bool {
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	name = strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(name))
	for _, part := range []string{"secret", "accesskey", "apikey", "token", "password", "passwd", "pwd", "credential", "signature"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return strings.HasPrefix(name, "xamz") || name == "sig" || name == "code" || name == "key" || name == "auth"
}
