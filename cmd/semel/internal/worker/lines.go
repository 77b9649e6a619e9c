package worker

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/source"
)

// messageLine is a message as long-lived handlers and batches of --http get it (docs/pipe.md).
type messageLine struct {
	ID           uint64            `json:"id"`
	Key          string            `json:"key"`
	EffectKey    string            `json:"effect_key"`
	Fence        uint64            `json:"fence"`
	Attempt      int               `json:"attempt"`
	MaxAttempts  int               `json:"max_attempts"`
	LeaseExpires time.Time         `json:"lease_expires"`
	Queue        string            `json:"queue"`
	MessageID    string            `json:"message_id"`
	Redelivered  bool              `json:"redelivered"`
	Version      string            `json:"version,omitempty"`
	Traceparent  string            `json:"traceparent,omitempty"`
	Tracestate   string            `json:"tracestate,omitempty"`
	Baggage      string            `json:"baggage,omitempty"`
	Headers      map[string]string `json:"headers,omitempty"`
	Body         json.RawMessage   `json:"body,omitempty"`
	BodyBase64   *string           `json:"body_base64,omitempty"`
}

// lineOf describes an attempt. The body is a JSON value if it is an object or an array, a string if it is other text, and
// base64 if it is no text.
func lineOf(id uint64, queue string, a *semel.Attempt) *messageLine {
	m := &messageLine{
		ID: id, Key: a.Key.Raw, EffectKey: a.EffectKey(""), Fence: a.Token, Attempt: a.Number, MaxAttempts: a.MaxAttempts,
		LeaseExpires: a.Deadline.UTC(), Queue: queue, MessageID: a.ID, Redelivered: a.Redelivered,
		Traceparent: a.Header("traceparent"), Tracestate: a.Header("tracestate"), Baggage: a.Header("baggage"),
		Headers: a.Headers,
	}
	if v := a.Version(); v != "" {
		m.Version = v.String()
	}
	text := bytes.TrimSpace(a.Body)
	switch {
	case len(text) > 0 && (text[0] == '{' || text[0] == '[') && utf8.Valid(text) && json.Valid(text):
		m.Body = text
	case utf8.Valid(a.Body):
		m.Body, _ = encodeLine(string(a.Body)) // a string always encodes
	default:
		s := base64.StdEncoding.EncodeToString(a.Body)
		m.BodyBase64 = &s
	}
	return m
}

// encodeLine makes one line of JSON, with its newline, without the escaping of HTML.
func encodeLine(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// verdict is what a handler says became of a message.
type verdict string

// The outcomes of docs/pipe.md.
const (
	verdictDone        verdict = "done"
	verdictRetry       verdict = "retry"       // a failed run whose outcome is unknown
	verdictLater       verdict = "later"       // a failed run that applied nothing
	verdictDead        verdict = "dead"        // nothing was applied, and no retry can help
	verdictDrop        verdict = "drop"        // completed without effect
	verdictBusy        verdict = "busy"        // no attempt: nothing was applied
	verdictUnavailable verdict = "unavailable" // no attempt: the downstream cannot be reached
)

// resultLine is what a handler writes about one message.
type resultLine struct {
	ID      uint64          `json:"id"`
	Outcome verdict         `json:"outcome"`
	Result  json.RawMessage `json:"result"`
	Reason  string          `json:"reason"`
	DelayMS *int64          `json:"delay_ms"`
	Effects []effect        `json:"effects"`
	Emit    []emitted       `json:"emit"`
}

// emitted is a message that a handler sends with its record.
type emitted struct {
	Queue string `json:"queue"`
	source.Envelope
}

// readResults reads a line or response: one result, or an array of them. The error says what the handler wrote wrong, and the
// results before it are valid.
func readResults(b []byte) ([]*resultLine, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	dec.DisallowUnknownFields()
	var all []*resultLine
	var err error
	if bytes.HasPrefix(b, []byte{'['}) {
		err = dec.Decode(&all)
	} else {
		one := &resultLine{}
		err = dec.Decode(one)
		all = append(all, one)
	}
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("want one JSON value a line")
		}
	}
	if err != nil {
		return nil, fmt.Errorf(`want {"id":…,"outcome":"done"}: %w`, err)
	}
	for i, r := range all {
		if err := r.check(); err != nil {
			return all[:i], err
		}
	}
	return all, nil
}

// check returns an error for a result that cannot be taken at its word.
func (r *resultLine) check() error {
	if r == nil || r.ID == 0 {
		return errors.New(`"id" is missing: it is the id of the message`)
	}
	switch r.Outcome {
	case verdictDone, verdictRetry, verdictLater, verdictDead, verdictDrop, verdictBusy, verdictUnavailable:
	default:
		return fmt.Errorf(`"outcome" %q is unknown (known: done, retry, later, dead, drop, busy, unavailable)`, r.Outcome)
	}
	if d := r.DelayMS; d != nil && *d < 0 {
		return errors.New(`"delay_ms" is negative`)
	}
	return nil
}

// declared reports an outcome that says what became of the effect: it holds for a cancelled run, too.
func (v verdict) declared() bool { return v != verdictRetry && v != verdictUnavailable }

// outcome is a verdict in the vocabulary of handlers; nil for done. fail is the run's error, after the delay before the next
// attempt that the handler asked for, nil = none.
func (v verdict) outcome(fail error, reason string, after *time.Duration) error {
	switch v {
	case verdictDone:
		return nil
	case verdictDrop:
		return semel.Drop(cmp.Or(reason, "the handler dropped it"))
	case verdictDead:
		return semel.Permanent(semel.NotApplied(fail))
	case verdictBusy:
		if after == nil {
			return semel.Deferred(fail, time.Second)
		}
		return semel.Deferred(fail, *after)
	case verdictLater:
		fail = semel.NotApplied(fail)
	case verdictUnavailable:
		fail = semel.Unavailable(fail)
	case verdictRetry:
	}
	if after != nil {
		return semel.RetryAfter(fail, *after)
	}
	return fail
}

// err is the outcome of a result; nil for done.
func (r *resultLine) err() error {
	reason := shorten(strings.TrimSpace(r.Reason), 300)
	var after *time.Duration
	if r.DelayMS != nil {
		after = new(time.Duration(min(*r.DelayMS, maxRetryAfter.Milliseconds())) * time.Millisecond)
	}
	return r.Outcome.outcome(&failure{text: withDetail(fmt.Errorf("handler said %s", r.Outcome), reason).Error()}, reason, after)
}

// lineRun is one message on its way through a handler that takes lines or arrays.
type lineRun struct {
	id uint64
	a  *semel.Attempt
	// These are valid when done is closed.
	reply *resultLine
	err   error // there is no result
	done  chan struct{}
}

func newLineRun(id uint64, a *semel.Attempt) lineRun {
	return lineRun{id: id, a: a, done: make(chan struct{})}
}

func (r *lineRun) end(reply *resultLine, err error) {
	r.reply, r.err = reply, err
	close(r.done)
}

// take applies the result of a run, which is cut where it is longer than keep.
func (r *lineRun) take(tx *semel.Statements, keep int, log *slog.Logger) error {
	if r.err != nil {
		return r.err
	}
	if err := r.reply.err(); err != nil {
		return err
	}
	if len(r.reply.Result) > keep {
		log.Warn("result cut", "key", r.a.Key.Raw, "bytes", keep, "hint", "raise --result-max, or return less")
		r.reply.Result = r.reply.Result[:keep]
	}
	return r.reply.apply(r.a, tx)
}

// takeAll applies the results of a batch in one transaction. Failures that the handler named are named; if the call as a whole
// failed the batch is halved to find out why.
func takeAll(runs []*lineRun, tx *semel.Statements, keep int, log *slog.Logger) error {
	var failed []error
	for i, r := range runs {
		if r.err != nil {
			return r.err
		}
		if err := r.take(tx, keep, log); err != nil {
			failed = append(failed, semel.ItemFailed(i, err))
		}
	}
	return errors.Join(failed...)
}

// apply stores the result of a run that is done, with its effects and messages; tx is nil where there is none. An error is the
// handler's mistake: the message becomes a dead letter.
func (r *resultLine) apply(a *semel.Attempt, tx *semel.Statements) error {
	if tx == nil && len(r.Effects) > 0 {
		return semel.Permanent(errors.New(`the handler wrote "effects", which need --effects sql`))
	}
	for i := range r.Effects {
		err := r.Effects[i].complete()
		if err == nil && r.Effects[i].Result != nil {
			err = errors.New(`"result" is a member of the result, next to "effects"`)
		}
		if err != nil {
			return semel.Permanent(fmt.Errorf("effect %d of the handler's result: %w", i+1, err))
		}
	}
	for i := range r.Emit {
		m, err := r.Emit[i].Message()
		if err != nil {
			return semel.Permanent(fmt.Errorf("emitted message %d of the handler's result: %w", i+1, err))
		}
		m.Queue = r.Emit[i].Queue
		a.Emit(m)
	}
	for i := range r.Effects {
		r.Effects[i].queue(tx)
	}
	if r.Result != nil {
		a.SetResult(r.Result)
	}
	return nil
}
