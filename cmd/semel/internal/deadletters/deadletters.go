// Package deadletters redrives, discards and resolves dead letters, in the order that survives a crash between any two steps
// (protocol section 2, operator): the record first, then the message, then the dead letter.
package deadletters

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// Mode says what a redrive does with keys whose effect may have happened, or surely did.
type Mode string

// The modes. All of them drop the dead letter of a completed key, but for Rerun with NewGeneration.
const (
	// Skip reopens failed keys; what is in doubt stays in doubt, and the handler runs with the same effect key.
	Skip Mode = "skip"
	// Verify is Skip for keys without doubt; a key with doubt is redriven only where a probe will be asked first.
	Verify Mode = "verify"
	// Rerun vouches that the effect did not happen: nothing is probed.
	Rerun Mode = "rerun"
)

// Box is a queue whose dead letters can be worked on, with the store of their records.
type Box struct {
	Name string
	// Horizon is how late copies of messages can come that the queue knows of: records are kept for longer (law 10).
	Horizon time.Duration
	// Flags are those by which a command finds the queue and the store, for commands that are proposed.
	Flags       []string
	DeadLetters driver.DeadLetterQueue
	Sender      driver.Sender
	Records     driver.RecordInspector
	Operate     driver.Operator
}

// NewBox asserts what working on dead letters needs.
func NewBox(q driver.Queue, s driver.Store) (Box, error) {
	is := q.Features()
	b := Box{Name: is.Name, Horizon: is.LateBy(0)}
	var ok [4]bool
	b.DeadLetters, ok[0] = driver.DeadLettersOf(q)
	b.Sender, ok[1] = driver.As[driver.Sender](q)
	b.Records, ok[2] = driver.As[driver.RecordInspector](s)
	b.Operate, ok[3] = driver.As[driver.Operator](s)
	for i, what := range []string{"keeps no dead letters", "takes no messages", "shows no records", "takes no operations"} {
		if !ok[i] {
			where := "queue " + b.Name
			if i > 1 {
				where = "store " + s.Features().Name
			}
			return b, fmt.Errorf("%s %s: %w", where, what, driver.ErrUnsupported)
		}
	}
	return b, nil
}

// Outcome says what became of one dead letter.
type Outcome string

// The outcomes.
const (
	Redriven Outcome = "redriven" // the record was reopened, the message sent, the dead letter deleted
	Dropped  Outcome = "dropped"  // the key is completed: the dead letter was deleted, nothing sent
	Stale    Outcome = "stale"    // the record went on without it to its end: the dead letter was deleted, nothing sent
	Disposed Outcome = "discarded"
	Refused  Outcome = "refused" // nothing was changed; Why says what to do instead
)

// Result is what became of one dead letter.
type Result struct {
	ID      string  `json:"id"`
	Key     string  `json:"key"`
	Outcome Outcome `json:"outcome"`
	// MessageID is the id of the message that was sent.
	MessageID string `json:"message_id,omitempty"`
	Why       string `json:"why,omitempty"`
	DryRun    bool   `json:"dry_run,omitempty"`
}

// Options of a redrive.
type Options struct {
	Mode          Mode // "" = Verify for keys with doubt whose policy is probe, else Skip
	NewGeneration bool
	Keep          time.Duration
	DryRun        bool
	By            string // the operator, for the record's reason and the audit log
	Reason        string // why, for the same

	fingerprint driver.Fingerprint // of an edited message
}

// reason is what an operation did, by whom and why.
func (o Options) reason(did string) string {
	text := did + " by " + o.By
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	return text
}

// Redrive sends the message of a dead letter again under the key that it had. Every step can be repeated: after a crash the
// same call goes on where it stopped.
func (b Box) Redrive(ctx context.Context, l driver.DeadLetter, o Options) (Result, error) {
	res := Result{ID: l.ID, Key: l.Key.Raw, DryRun: o.DryRun}
	l, fp, err := edited(l)
	if err != nil {
		return refuse(res, "%s", err), nil
	}
	o.fingerprint = fp
	r, there, err := b.record(ctx, l.Key)
	if err != nil {
		return res, err
	}
	switch {
	case !there && l.Kind == driver.DeadLetterUncertain && o.Mode != Rerun:
		return refuse(res, "its record is gone, and its effect may have happened; --mode rerun when it surely did not"), nil
	case !there:
		// No record: it was never made (an unusable key), or it was purged. The message goes as a new one.
		res.Why = "the key has no record: sent as a new message"
	case l.Kind == driver.DeadLetterBusy && r.State == driver.Completed:
		res.Outcome, res.Why = Dropped, "the key is completed"
		return res, b.remove(ctx, l, o)
	case l.Kind == driver.DeadLetterBusy:
		// The dead letter is about the message, not about the record: the message is a duplicate like any other.
		res.Why = fmt.Sprintf("the record is %s: the message is sent again, and the record decides", r.State)
		return b.sendAgain(ctx, l, o, res)
	case l.Kind == driver.DeadLetterMismatch:
		return refuse(res, "its key belongs to another payload, which was %s; discard it, or send its body under a key of its own "+
			"(%s)", r.State, b.command("dlq", "show", l.ID, "--body")), nil
	default:
		done, send, err := b.byVersion(ctx, l, r, o, &res)
		if done || err != nil {
			return res, err
		}
		if send {
			return b.sendAgain(ctx, l, o, res)
		}
	}
	switch {
	case !there:
	case r.State == driver.Uncertain:
		return refuse(res, "the outcome is unknown: look at the downstream, then %s (or --as retry, --as failed)",
			b.resolve(l.Key)), nil
	default:
		if done, err := b.reopen(ctx, l, r, o, &res); done || err != nil {
			return res, err
		}
	}
	return b.sendAgain(ctx, l, o, res)
}

// reopen makes the record ready for another run; done tells that nothing is to be sent.
func (b Box) reopen(ctx context.Context, l driver.DeadLetter, r driver.Record, o Options, res *Result) (done bool, err error) {
	expired := r.State == driver.Expired
	rerun := o.Mode == Rerun && o.NewGeneration && (r.State == driver.Completed || r.Ended == driver.Completed)
	if expired && r.Ended == driver.Completed && !rerun {
		*res = refuse(*res, "its key was completed, and the record expired: nothing tells any more whether this message is a duplicate; "+
			"discard it, or --mode rerun --new-generation to run it all the same")
		return true, nil
	}
	if r.State == driver.Completed && !rerun {
		res.Outcome, res.Why = Dropped, "the key is completed"
		return true, b.remove(ctx, l, o)
	}
	if r.Unknown && (r.State == driver.FailedState || expired) && o.Mode == Verify && r.Takeover != driver.Probe {
		*res = refuse(*res, "its effect may have happened (%s) and its policy is %s, so no worker asks first; look, "+
			"then --mode skip to run it with the same effect key, or --mode rerun when it surely did not happen",
			output.Count(r.Uncertainty, "moment of doubt", "moments of doubt"), r.Takeover)
		return true, nil
	}
	if rerun && r.Token != l.Token {
		l.Token = 0 // a deliberate re-run is of the record as it is
		l.Generation = r.Generation
	}
	if l.Token != 0 && r.Token != l.Token {
		return b.wentOn(ctx, l, r, o, res)
	}
	if o.DryRun {
		return false, nil
	}
	after, out, err := b.Operate.Operate(ctx, driver.Operation{
		Kind: driver.Redrive, Key: l.Key, Token: l.Token, Generation: l.Generation, Keep: o.Keep,
		Verified: o.Mode == Rerun, NewGeneration: rerun, Fingerprint: o.fingerprint, Reason: o.reason("redriven"), By: o.By,
	})
	switch {
	case err != nil:
		return true, fmt.Errorf("redrive key %q: %w", l.Key.Raw, err)
	case out == driver.Applied:
		return false, nil
	}
	// It changed between the look and the operation.
	if l.Token != 0 && after.Token != l.Token || after.State == driver.Completed {
		return b.wentOn(ctx, l, after, o, res)
	}
	*res = refuse(*res, "its record is %s: wait until it is FAILED", after.State)
	return true, nil
}

// wentOn decides about a dead letter whose record has a newer attempt. Where that came to an end that stands there is nothing
// left to do. Else perhaps this very redrive had opened the record before it was interrupted, and a delivery whose
// message is gone has claimed it since, or failed it and could not write its dead letter: the message is sent again. One copy
// too many does no harm, one too few is a loss.
func (b Box) wentOn(ctx context.Context, l driver.DeadLetter, r driver.Record, o Options, res *Result) (done bool, err error) {
	if done, send, err := b.byVersion(ctx, l, r, o, res); done || send || err != nil {
		return done, err
	}
	if r.State == driver.Completed || r.Disposed {
		res.Outcome, res.Why = Stale, fmt.Sprintf("the record is %s with a newer attempt", r.State)
		return true, b.remove(ctx, l, o)
	}
	res.Why = fmt.Sprintf("the record is %s with a newer attempt: sent again in case that one has no message", r.State)
	return false, nil
}

func (b Box) sendAgain(ctx context.Context, l driver.DeadLetter, o Options, res Result) (Result, error) {
	m, err := Again(l)
	if err != nil {
		return refuse(res, "%s", err), nil
	}
	res.Outcome, res.MessageID = Redriven, m.ID
	if o.DryRun {
		return res, nil
	}
	if _, err := b.send(ctx, l); err != nil {
		return res, err
	}
	return res, b.remove(ctx, l, o)
}

func (b Box) send(ctx context.Context, l driver.DeadLetter) (id string, err error) {
	m, err := Again(l)
	if err != nil {
		return "", fmt.Errorf("dead letter %s: %w", l.ID, err)
	}
	if err := b.Sender.Send(ctx, m); err != nil {
		return "", fmt.Errorf("send the message of dead letter %s again: %w", l.ID, err)
	}
	return m.ID, nil
}

func (b Box) remove(ctx context.Context, l driver.DeadLetter, o Options) error {
	if o.DryRun {
		return nil
	}
	if err := b.DeadLetters.DeleteDeadLetter(ctx, l.ID); err != nil {
		return fmt.Errorf("delete dead letter %s: %w", l.ID, err)
	}
	return nil
}

func refuse(r Result, format string, args ...any) Result {
	r.Outcome, r.Why = Refused, fmt.Sprintf(format, args...)
	return r
}

// record reads the record of a dead letter; a dead letter about an unusable key has none.
func (b Box) record(ctx context.Context, k driver.Key) (driver.Record, bool, error) {
	if k.Raw == "" {
		return driver.Record{}, false, nil
	}
	r, ok, err := b.Records.Record(ctx, k)
	if err != nil {
		return r, false, fmt.Errorf("read record of key %q: %w", k.Raw, err)
	}
	return r, ok && r.State != driver.Absent, nil
}

// The headers of a message that was sent again.
const (
	headerKey        = "idempotency-key"
	headerGeneration = "semel-generation"
)

// Again is a dead letter's message made ready to be sent again: under a new broker id, which is the same when the same
// dead letter is sent again after a crash, and under the key that it had. Where the key was the broker's id, the id travels
// in the header idempotency-key from now on.
func Again(l driver.DeadLetter) (driver.Message, error) {
	m := l.Message
	m.Headers = maps.Clone(m.Headers)
	if m.Headers == nil {
		m.Headers = map[string]string{}
	}
	m.SentAt, m.Delay = time.Time{}, 0
	m.ID = driver.RedriveID(l.ID)        // a second failure of the key makes another dead letter, whose id has its token
	if l.Kind != driver.DeadLetterBusy { // which opens no generation
		m.Headers[headerGeneration] = fmt.Sprint(l.Generation + 1)
	}
	if keyByID(l.Message) != l.Key.Raw || keyByID(m) == l.Key.Raw {
		return m, nil // the key is made from the content or from headers, which stay as they are
	}
	m.Headers[headerKey] = l.Message.ID
	if keyByID(m) != l.Key.Raw {
		return m, errors.New("its key cannot be carried to a new message id")
	}
	return m, nil
}

// keyByID is the default key of a message; "" when it has none.
func keyByID(m driver.Message) string {
	k, err := key.ByID(&m)
	if err != nil {
		return ""
	}
	return k
}

// Discard decides that a dead letter's message is not to run any more: later duplicates are just acknowledged.
func (b Box) Discard(ctx context.Context, l driver.DeadLetter, o Options) (Result, error) {
	res := Result{ID: l.ID, Key: l.Key.Raw, Outcome: Disposed, DryRun: o.DryRun}
	r, there, err := b.record(ctx, l.Key)
	if err != nil {
		return res, err
	}
	switch {
	case !there || l.Kind == driver.DeadLetterMismatch || l.Kind == driver.DeadLetterBusy || l.Kind == driver.DeadLetterLate || foreign(l, r):
		// There is no record of this payload or version: the dead letter is all there is.
	case r.State == driver.Uncertain && r.Token == l.Token:
		return refuse(res, "the outcome is unknown: look at the downstream, then %s (or --as failed)",
			b.resolve(l.Key)), nil
	case r.State == driver.FailedState && r.Token == l.Token && !o.DryRun:
		_, out, err := b.Operate.Operate(ctx, driver.Operation{
			Kind: driver.Discard, Key: l.Key, Token: l.Token, Generation: l.Generation, Reason: o.reason("discarded"), By: o.By,
		})
		if err != nil {
			return res, fmt.Errorf("discard key %q: %w", l.Key.Raw, err)
		}
		if out != driver.Applied {
			return refuse(res, "its record changed meanwhile: look again"), nil
		}
	case r.State == driver.Released && r.Token == l.Token:
		return refuse(res, "it was redriven, and its message may not have been sent yet: repeat the redrive"), nil
	case r.Token != l.Token && r.State != driver.Completed && r.State != driver.Expired && !r.Disposed:
		// The newer attempt may be one without a message (see wentOn). Only where it has a dead letter of its own nothing hangs
		// on this one.
		_, ok, err := b.DeadLetters.DeadLetter(ctx, driver.DeadLetterID(l.Kind, l.Key, r.Token, ""))
		if err != nil {
			return res, fmt.Errorf("read dead letter: %w", err)
		}
		if !ok {
			return refuse(res, "the record is %s with a newer attempt, which may have no message: redrive it, then discard what comes of it",
				r.State), nil
		}
		res.Why = "a newer dead letter of the key stands"
	}
	return res, b.remove(ctx, l, o)
}

// Resolutions are the names of the states that a person may decide for an uncertain key.
var Resolutions = map[string]driver.State{
	"completed": driver.Completed, "retry": driver.Released, "failed": driver.FailedState,
}

// Resolve ends an uncertain key as a person decided; for a retry its message is sent again from the dead letter. Each step
// can be repeated. The dead letter may be absent: then its message is still in the queue. It returns the id of the message
// that was sent, "" = none.
func (b Box) Resolve(ctx context.Context, r driver.Record, as driver.State, result []byte, o Options) (string, error) {
	after, out, err := b.Operate.Operate(ctx, driver.Operation{
		Kind: driver.Resolve, Key: r.Key, Token: r.Token, Generation: r.Generation, As: as, Result: result, Keep: o.Keep,
		Reason: o.reason("resolved"), By: o.By,
	})
	if err != nil {
		return "", fmt.Errorf("resolve key %q: %w", r.Key.Raw, err)
	}
	ls, err := b.uncertain(ctx, r.Key, r.Watermark.Running)
	if err != nil {
		return "", err
	}
	if out != driver.Applied && (as != driver.Released || len(ls) == 0 || after.State == driver.Completed) {
		return "", &NotUncertainError{Key: r.Key.Raw, State: after.State}
	}
	// Applied, now or before; or this very resolution was interrupted, and a delivery whose message is gone has claimed
	// the key since: as with a redrive the message is sent again.
	sent := ""
	for _, l := range ls {
		if as == driver.Released {
			if sent, err = b.send(ctx, l); err != nil {
				return "", err
			}
		}
		if err := b.remove(ctx, l, Options{}); err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// uncertain lists the uncertain dead letters of a key: one, unless an earlier resolution was interrupted.
func (b Box) uncertain(ctx context.Context, k driver.Key, v driver.Version) (out []driver.DeadLetter, err error) {
	all, err := b.DeadLetters.DeadLetters(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	for _, l := range all {
		if l.Kind == driver.DeadLetterUncertain && l.Key == k && l.Version == v {
			out = append(out, l)
		}
	}
	return out, nil
}
