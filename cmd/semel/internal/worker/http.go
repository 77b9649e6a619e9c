package worker

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
)

// HTTP posts each message to an endpoint. Its methods may be called concurrently.
type HTTP struct {
	URL, Queue string
	// Keep is how many bytes of a response are kept.
	Keep int
	// Secret signs requests as Standard Webhooks do; nil = not.
	Secret []byte
	// Sqsd adds the headers of the worker daemon of Elastic Beanstalk.
	Sqsd   bool
	Client *http.Client
	Log    *slog.Logger
	// Retry are the user's rules: where one matches, the status has no meaning of its own but that of the rule.
	Retry []semel.RetryRule
}

// NewHTTP completes an HTTP runner: concurrency is how many requests run at once.
func NewHTTP(h HTTP, concurrency int) *HTTP {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.MaxIdleConns = concurrency, 2*concurrency
	// A redirected POST would become a GET, or reach an endpoint that nobody configured.
	h.Client = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return &h
}

// idempotencyKey is deliberately not in the canonical spelling; see request.
const idempotencyKey = "idempotency-key"

// Run implements Runner.
func (h *HTTP) Run(ctx context.Context, a *semel.Attempt) ([]byte, bool, error) {
	req, err := h.request(ctx, a)
	if err != nil {
		return nil, false, semel.Permanent(semel.NotApplied(fmt.Errorf("make request: %w", shown(err, h.URL))))
	}
	res, err := h.Client.Do(req)
	if err != nil {
		return nil, false, h.failure(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	out := &capture{max: h.Keep}
	// A bounded part of the rest is read so that the connection can be used again.
	_, err = io.Copy(out, io.LimitReader(res.Body, int64(h.Keep)+256<<10))
	body, cut := out.got()
	if err != nil {
		// The status came, the body did not arrive whole: what the status says of the effect still holds, the result does
		// not exist.
		return nil, false, h.failure(ctx, fmt.Errorf("read response: %w", err))
	}
	return body, cut, h.outcome(res, body)
}

// failure classifies a request without a response. It certainly had no effect only if it was never sent.
func (h *HTTP) failure(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("request stopped: %w", cause)
	}
	err = shown(err, h.URL)
	fail := error(&failure{broken: true, text: err.Error(), err: err})
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		fail = semel.NotApplied(fail)
		if ruled(h.Retry, fail) == nil {
			fail = semel.Unavailable(fail) // nobody is there: that is no message's failure
		}
	}
	return fail
}

// shown is an error of net/http that names the endpoint as it may be shown: errors become reasons, which are stored.
func shown(err error, endpoint string) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		e.URL = open.Redact(endpoint)
	}
	return err
}

// outcome translates a response into a handler's error (docs/worker.md has the table).
func (h *HTTP) outcome(res *http.Response, body []byte) error {
	reason := reasonOf(res, body)
	fail := error(&failure{
		status: res.StatusCode, text: withDetail(fmt.Errorf("handler responded %s", res.Status), reason).Error(),
	})
	after := retryAfter(res.Header.Get("Retry-After"), time.Now())
	switch said := verdict(strings.ToLower(strings.TrimSpace(res.Header.Get("Semel-Outcome")))); said {
	case "":
	case verdictDone, verdictRetry, verdictDead, verdictDrop:
		return said.outcome(fail, reason, after)
	default:
		h.Log.Warn("unknown Semel-Outcome ignored", "outcome", said, "known", "done, retry, dead, drop")
	}
	return h.byStatus(res.StatusCode, fail, after)
}

// reasonOf is what a response says about its status.
func reasonOf(res *http.Response, body []byte) string {
	if reason := res.Header.Get("Semel-Reason"); reason != "" {
		return reason
	}
	return shorten(strings.TrimSpace(strings.ToValidUTF8(string(body), "\uFFFD")), 300)
}

func (h *HTTP) byStatus(code int, fail error, after *time.Duration) error {
	said := statusVerdict(code)
	if rule := ruled(h.Retry, fail); code >= 300 && rule != nil {
		if code >= 400 && code < 500 && code != http.StatusRequestTimeout {
			fail = semel.NotApplied(fail)
		}
		if after != nil && !rule.Permanent && !rule.Deferred && !rule.Unavailable {
			return semel.RetryAfter(fail, *after) // of the delay the endpoint knows more
		}
		return fail
	}
	switch {
	case said == verdictUnavailable:
		// The configuration's mistake, not the message's; a redirect is never followed.
		h.Log.Error("the endpoint refuses every request: is the URL right?", "status", code, "err", fail)
		fail = semel.NotApplied(fail)
	case after == nil && said == verdictBusy && code != http.StatusConflict:
		after = new(5 * time.Second)
	}
	return said.outcome(fail, "", after)
}

// statusVerdict is what a status says if nothing else does.
func statusVerdict(code int) verdict {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return verdictUnavailable
	case http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return verdictBusy
	case http.StatusRequestTimeout: // it may have been applied
		return verdictRetry
	}
	switch {
	case permanentStatus(code):
		return verdictDead
	case code >= 200 && code < 300:
		return verdictDone
	case code >= 300 && code < 400:
		return verdictUnavailable
	case code >= 400 && code < 500:
		return verdictLater
	}
	return verdictRetry
}

// permanentStatus reports a status that refuses the message for good.
func permanentStatus(code int) bool {
	switch code {
	case http.StatusBadRequest, http.StatusGone, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// maxRetryAfter bounds what an endpoint can ask for: longer is a mistake, or an attack.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads the header: seconds, or a date. nil: there is none that can be read.
func retryAfter(v string, now time.Time) *time.Duration {
	v = strings.TrimSpace(v)
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		if s < 0 || math.IsNaN(s) {
			return nil
		}
		return new(time.Duration(min(s, maxRetryAfter.Seconds()) * float64(time.Second)))
	}
	if at, err := http.ParseTime(v); err == nil {
		return new(min(max(at.Sub(now), 0), maxRetryAfter))
	}
	return nil
}

func (h *HTTP) request(ctx context.Context, a *semel.Attempt) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(a.Body))
	if err != nil {
		return nil, err
	}
	set := func(name, value string) { req.Header.Set(name, headerValue(value)) }
	set("User-Agent", "semel")
	set("Content-Type", contentType(a))
	pass(req.Header, a)
	cloudEvent(set, h.Queue, a)
	// In this spelling, which is the same header to every endpoint: net/http sends a POST again by itself when a connection
	// breaks after the request and it finds the canonical name. An attempt is one request; repeating it is the engine's
	// decision, which counts it, and which policy once forbids.
	req.Header[idempotencyKey] = []string{a.EffectKey("")}
	identify(req.Header, h.Queue, a)
	if h.Sqsd {
		set("X-Aws-Sqsd-Msgid", a.ID)
		set("X-Aws-Sqsd-Queue", h.Queue)
		set("X-Aws-Sqsd-Receive-Count", strconv.Itoa(a.Number))
		if !a.SentAt.IsZero() {
			set("X-Aws-Sqsd-First-Received-At", a.SentAt.UTC().Format(time.RFC3339))
		}
		for k, v := range a.Headers {
			if token(k) {
				set("X-Aws-Sqsd-Attr-"+k, v)
			}
		}
	}
	if h.Secret != nil {
		sign(req.Header, h.Secret, a.EffectKey(""), a.Body, time.Now())
	}
	return req, nil
}

// identify sets what a handler or probe learns about its attempt, beside the effect key, which has a header of its own.
func identify(to http.Header, queue string, a *semel.Attempt) {
	for _, id := range identities(queue, a) {
		if id.name != "EFFECT_KEY" {
			to.Set("Semel-"+strings.ReplaceAll(id.name, "_", "-"), headerValue(id.value))
		}
	}
}

// pass hands the sender's headers on: those of CloudEvents and of tracing as they are, all others as Semel-Header-NAME,
// so that no sender can speak with the endpoint's Authorization, Host or Semel-* headers.
func pass(to http.Header, a *semel.Attempt) {
	for k, v := range a.Headers {
		name := strings.ToLower(k)
		switch {
		case !token(k) || name == "content-type":
		case strings.HasPrefix(name, "ce-"), traceContext(name):
			to.Set(k, headerValue(v))
		default:
			to.Set("Semel-Header-"+k, headerValue(v))
		}
	}
}

// cloudEvent sets the required attributes of CloudEvents 1.0 in binary mode where the sender did not.
func cloudEvent(set func(name, value string), queue string, a *semel.Attempt) {
	set("Ce-Specversion", "1.0")
	for _, c := range []struct{ name, value string }{
		{"Ce-Id", a.ID}, {"Ce-Source", "/semel/" + queue}, {"Ce-Type", "dev.semel.message"},
	} {
		if a.Header(c.name) == "" {
			set(c.name, c.value)
		}
	}
	if a.Header("Ce-Time") == "" && !a.SentAt.IsZero() {
		set("Ce-Time", a.SentAt.UTC().Format(time.RFC3339Nano))
	}
}

func contentType(a *semel.Attempt) string {
	if t := a.Header("content-type"); t != "" {
		return t
	}
	if json.Valid(a.Body) {
		return "application/json"
	}
	return "application/octet-stream"
}

// headerValue makes a value fit for an HTTP header: what is not printable ASCII is written as %XX (as CloudEvents
// demands of its headers), and a % as %25 in such a value only.
func headerValue(s string) string {
	plain := true
	for i := range len(s) {
		plain = plain && s[i] >= 0x20 && s[i] < 0x7f
	}
	if plain {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// token reports a legal name of an HTTP header (RFC 9110, section 5.6.2).
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0 {
			continue
		}
		return false
	}
	return s != ""
}

// failure is how a run ended that did not succeed: what the rules of --retry look at.
type failure struct {
	exit   int            // exit status of a program; 0 = it has none
	signal syscall.Signal // that ended it; 0 = none
	status int            // of an HTTP response; 0 = there was none
	broken bool           // HTTP: no response came
	text   string
	err    error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// ruled is the user's rule for a failure, nil when there is none: the built-in meaning of its code then does not hold, but for
// what it says of the effect.
func ruled(rules []semel.RetryRule, err error) *semel.RetryRule {
	for i := range rules {
		if rules[i].Match != nil && rules[i].Match(err) {
			return &rules[i]
		}
	}
	return nil
}

// isFailure matches failures of runners.
func isFailure(ok func(*failure) bool) func(error) bool {
	return func(err error) bool {
		f := (*failure)(nil)
		return errors.As(err, &f) && ok(f)
	}
}

// ReadSecret reads a Standard Webhooks secret (whsec_ and base64) from a file.
func ReadSecret(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	encoded, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "whsec_")
	if !ok {
		return nil, fmt.Errorf("file %s: the secret must begin with whsec_", path)
	}
	secret, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(secret) < 16 {
		return nil, fmt.Errorf("file %s: the secret must be base64 of 16 bytes or more after whsec_", path)
	}
	return secret, nil
}

// sign adds the headers of Standard Webhooks: the id is the effect key, which stays the same when the message is redelivered,
// so that a receiver's replay protection agrees with ours.
func sign(h http.Header, secret []byte, effectKey string, body []byte, now time.Time) {
	id, at := "msg_"+effectKey, strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(body)
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", at)
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
