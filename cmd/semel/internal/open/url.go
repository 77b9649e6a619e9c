// Package open turns the URLs of the command line into queues and stores.
package open

import (
	"net/url"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// schemes are the URL schemes that this binary knows.
var schemes = []string{"memory", "sqlite"}

// DefaultQueue is the queue of a URL that names none.
const DefaultQueue = "default"

// Target is a parsed URL.
type Target struct {
	Scheme string
	// Path is the database file (sqlite), absolute and with symbolic links resolved where it exists, so that two
	// spellings of one file are one database.
	Path string
	// Shown is the path as it was given, for people.
	Shown string
	// Queue is the queue's name, "" when the URL names none.
	Queue string
}

// QueueName is the name of the queue that is meant.
func (t Target) QueueName() string {
	if t.Queue == "" {
		return DefaultQueue
	}
	return t.Queue
}

// Parse reads a URL. flag names where it came from, for the error.
func Parse(flag, raw string) (Target, error) {
	if raw == "" {
		return Target{}, output.Usage("--%s is missing", flag).WithHint("--%s 'sqlite:orders.db?queue=orders'", flag)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return Target{}, output.Usage("--%s %q is not a URL: %w", flag, raw, err).
			WithHint("--%s 'sqlite:orders.db?queue=orders'", flag)
	}
	scheme, _, ok := strings.Cut(raw, ":")
	if !ok {
		return Target{}, output.Usage("--%s %q has no scheme", flag, raw).WithHint("--%s 'sqlite:%s'", flag, raw)
	}
	t := Target{Scheme: strings.ToLower(scheme)}
	if !slices.Contains(schemes, t.Scheme) {
		return Target{}, output.Usage("--%s has the unknown URL scheme %q (known: %s)", flag, scheme,
			strings.Join(schemes, ", ")).WithHint("--%s 'sqlite:orders.db?queue=orders'", flag)
	}
	if u.Fragment != "" || strings.Contains(raw, "#") {
		return Target{}, output.Usage("--%s %q has a fragment (#…)", flag, raw).WithHint("write # in a file name as %%23")
	}
	if err := t.query(flag, u); err != nil {
		return Target{}, err
	}
	if t.Scheme == "memory" {
		if u.Host != "" || u.Opaque != "" || strings.Trim(u.Path, "/") != "" {
			return Target{}, output.Usage("--%s %q: memory:// takes no path", flag, raw).WithHint("memory://?queue=NAME")
		}
		t.Shown = "memory"
		return t, nil
	}
	return t, t.file(flag, raw, u)
}

func (t *Target) query(flag string, u *url.URL) error {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return output.Usage("--%s: query %q: %w", flag, u.RawQuery, err)
	}
	names := make([]string, 0, len(q))
	for name := range q {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if name != "queue" {
			return output.Usage("--%s: unknown query parameter %q (known: queue)", flag, name)
		}
		if len(q[name]) > 1 || q.Get(name) == "" {
			return output.Usage("--%s: query parameter queue must be given once, and not be empty", flag)
		}
	}
	t.Queue = q.Get("queue")
	if len(t.Queue) > 200 || strings.ContainsFunc(t.Queue, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return output.Usage("--%s: queue name %q is longer than 200 bytes or has control characters", flag, t.Queue)
	}
	return nil
}

func (t *Target) file(flag, raw string, u *url.URL) error {
	path := u.Path
	switch {
	case u.Opaque != "":
		p, err := url.PathUnescape(u.Opaque)
		if err != nil {
			return output.Usage("--%s %q: %w", flag, raw, err)
		}
		path = p
	case u.Host != "":
		return output.Usage("--%s %q: two slashes start a host name", flag, raw).
			WithHint("sqlite:%s for a relative path, sqlite:///%s for an absolute one", u.Host+u.Path, u.Host+u.Path)
	}
	if path == "" || strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0) {
		return output.Usage("--%s %q names no file", flag, raw).WithHint("--%s 'sqlite:orders.db?queue=orders'", flag)
	}
	if path == ":memory:" {
		return output.Usage("--%s %q: a database in memory is memory://", flag, raw)
	}
	t.Shown = path
	abs, err := filepath.Abs(path)
	if err != nil {
		return output.Usage("--%s %q: %w", flag, raw, err)
	}
	t.Path = abs
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		t.Path = real
	} else if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		t.Path = filepath.Join(dir, filepath.Base(abs))
	}
	return nil
}
