// Package worker runs handlers that are not Go: programs and HTTP endpoints. docs/worker.md is their contract.
package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/semel-dev/semel"
)

// Runner calls one kind of handler once. Its error speaks the vocabulary of handlers (semel.Permanent and so on).
type Runner interface {
	// Run returns the handler's output or response; cut reports that there was more than the runner keeps.
	Run(ctx context.Context, a *semel.Attempt) (out []byte, cut bool, err error)
}

// Plain makes a handler whose output becomes the stored result. Longer output is cut, and the log reports it.
func Plain(r Runner, log *slog.Logger) semel.Handler {
	return semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
		out, cut, err := r.Run(ctx, a)
		if err != nil {
			return err
		}
		if cut {
			log.Warn("result cut", "key", a.Key.Raw, "bytes", len(out), "hint", "raise --result-max, or print less on stdout")
		}
		a.SetResult(out)
		return nil
	})
}

// identity is what a handler learns about its attempt, by name; exec spells it SEMEL_X_Y, http Semel-X-Y.
type identity struct{ name, value string }

// identities lists what every handler receives, in the order of the documentation.
func identities(queue string, a *semel.Attempt) []identity {
	all := []identity{
		{"KEY", a.Key.Raw},
		{"MESSAGE_ID", a.ID},
		{"QUEUE", queue},
		{"ATTEMPT", strconv.Itoa(a.Number)},
		{"MAX_ATTEMPTS", strconv.Itoa(a.MaxAttempts)},
		{"FENCE", strconv.FormatUint(a.Token, 10)},
		{"EFFECT_KEY", a.EffectKey("")},
		{"LEASE_EXPIRES", a.Deadline.UTC().Format(time.RFC3339Nano)},
		{"REDELIVERED", strconv.FormatBool(a.Redelivered)},
	}
	if v := a.Version(); v != "" {
		all = append(all, identity{"VERSION", v.String()})
	}
	return all
}

// headersJSON is the message's headers as a JSON object, without the escaping of HTML.
func headersJSON(h map[string]string) string {
	if len(h) == 0 {
		return "{}"
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(h) != nil {
		return "{}" // strings always encode
	}
	return strings.TrimSpace(b.String())
}

// capture keeps the first bytes that are written to it and counts the rest. It may be written to concurrently.
type capture struct {
	mu   sync.Mutex
	buf  []byte
	max  int
	lost int64
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := min(len(p), c.max-len(c.buf))
	c.buf = append(c.buf, p[:keep]...)
	c.lost += int64(len(p) - keep)
	return len(p), nil
}

// got returns what was kept, and whether anything was lost.
func (c *capture) got() ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf, c.lost > 0
}

// lineLog passes lines on to a logger; a line without an end is passed on when it grows long, and at flush. It also
// remembers the last lines, for the reason of a failure.
type lineLog struct {
	mu   sync.Mutex
	buf  []byte
	last string
	tail []string // the last lines
	emit func(line string)
}

// tailLines is how many lines of stderr a lineLog remembers.
const tailLines = 10

// longLine is where a line of stderr is broken.
const longLine = 16 << 10

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for {
		head, rest, whole := bytes.Cut(p, []byte{'\n'})
		l.buf = append(l.buf, head...)
		if !whole && len(l.buf) < longLine {
			return n, nil
		}
		l.line()
		if !whole {
			return n, nil
		}
		p = rest
	}
}

func (l *lineLog) line() {
	s := strings.ToValidUTF8(strings.TrimRight(string(l.buf), "\r"), "\uFFFD")
	l.buf = l.buf[:0]
	if strings.TrimSpace(s) == "" {
		return
	}
	l.last, l.tail = s, append(l.tail[max(0, len(l.tail)+1-tailLines):], shorten(s, 300))
	l.emit(s)
}

// flush passes the rest on and returns the last line, shortened.
func (l *lineLog) flush() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf) > 0 {
		l.line()
	}
	return shorten(l.last, 300)
}

func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// withDetail adds what the handler said about its failure.
func withDetail(err error, detail string) error {
	if detail == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, detail)
}
