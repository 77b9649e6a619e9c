package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
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

// Outcome says what became of one dead letter.
type Outcome string

// The outcomes.
const (
	Redriven  Outcome = "redriven"  // the record was reopened, the message sent, the dead letter deleted
	Dropped   Outcome = "dropped"   // the key is completed: the dead letter was deleted, nothing sent
	Stale     Outcome = "stale"     // the record went on without it to its end: the dead letter was deleted, nothing sent
	Overtaken Outcome = "overtaken" // a newer version is applied: the dead letter was deleted, nothing sent
	Discarded Outcome = "discarded" // the dead letter was deleted, and the key does not run any more
	Refused   Outcome = "refused"   // nothing was changed; Why says what to do instead
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

// Options of an operation.
type Options struct {
	// Mode and NewGeneration are of a redrive. Defaults to Skip. NewGeneration goes with Rerun: it runs a completed key again, under
	// a new effect key.
	Mode          Mode
	NewGeneration bool
	// Keep is how long the record is kept from now on. It must be longer than a copy of the message can come late
	// (Queue.Horizon). Defaults to [RetentionFor] of the queue.
	Keep time.Duration
	// DryRun writes nothing: the result is what would happen.
	DryRun bool
	// By is the operator and Reason why, for the record and the audit log.
	By, Reason string

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
// same call goes on where it stopped. A dead letter that must not be sent again is a result (Refused), not an error: errors are
// those of the queue and the store.
func (q Queue) Redrive(ctx context.Context, l driver.DeadLetter, o Options) (Result, error) {
	res := Result{ID: l.ID, Key: l.Key.Raw, DryRun: o.DryRun}
	l, fp, err := edited(l)
	if err != nil {
		return refuse(res, "%s", err), nil
	}
	o.fingerprint = fp
	r, there, err := q.record(ctx, l.Key)
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
		return res, q.remove(ctx, l, o)
	case l.Kind == driver.DeadLetterBusy:
		// The dead letter is about the message, not about the record: the message is a duplicate like any other.
		res.Why = fmt.Sprintf("the record is %s: the message is sent again, and the record decides", r.State)
		return q.sendAgain(ctx, l, o, res)
	case l.Kind == driver.DeadLetterMismatch:
		return refuse(res, "its key belongs to another payload, which was %s; discard it, or send its body under a key of its own "+
			"(%s)", r.State, q.CLI.DeadLetters("show", l.ID, "--body")), nil
	default:
		done, send, err := q.byVersion(ctx, l, r, o, &res)
		if done || err != nil {
			return res, err
		}
		if send {
			return q.sendAgain(ctx, l, o, res)
		}
	}
	switch {
	case !there:
	case r.State == driver.Uncertain:
		return refuse(res, "the outcome is unknown: look at the downstream, then %s (or --as retry, --as failed)",
			q.resolve(l.Key)), nil
	default:
		if done, err := q.reopen(ctx, l, r, o, &res); done || err != nil {
			return res, err
		}
	}
	return q.sendAgain(ctx, l, o, res)
}

// reopen makes the record ready for another run; done tells that nothing is to be sent.
func (q Queue) reopen(ctx context.Context, l driver.DeadLetter, r driver.Record, o Options, res *Result) (done bool, err error) {
	expired := r.State == driver.Expired
	rerun := o.Mode == Rerun && o.NewGeneration && (r.State == driver.Completed || r.Ended == driver.Completed)
	if expired && r.Ended == driver.Completed && !rerun {
		*res = refuse(*res, "its key was completed, and the record expired: nothing tells any more whether this message is a duplicate; "+
			"discard it, or --mode rerun --new-generation to run it all the same")
		return true, nil
	}
	if r.State == driver.Completed && !rerun {
		res.Outcome, res.Why = Dropped, "the key is completed"
		return true, q.remove(ctx, l, o)
	}
	if r.Unknown && (r.State == driver.FailedState || expired) && o.Mode == Verify && r.Takeover != driver.Probe {
		*res = refuse(*res, "its effect may have happened (%s) and its policy is %s, so no worker asks first; look, "+
			"then --mode skip to run it with the same effect key, or --mode rerun when it surely did not happen",
			words.Count(r.Uncertainty, "moment of doubt", "moments of doubt"), r.Takeover)
		return true, nil
	}
	if rerun && r.Token != l.Token {
		l.Token = 0 // a deliberate re-run is of the record as it is
		l.Generation = r.Generation
	}
	if l.Token != 0 && r.Token != l.Token {
		return q.wentOn(ctx, l, r, o, res)
	}
	if o.DryRun {
		return false, nil
	}
	after, out, err := q.operator.Operate(ctx, driver.Operation{
		Kind: driver.Redrive, Key: l.Key, Token: l.Token, Generation: l.Generation, Keep: q.keep(o),
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
		return q.wentOn(ctx, l, after, o, res)
	}
	*res = refuse(*res, "its record is %s: wait until it is FAILED", after.State)
	return true, nil
}

// wentOn decides about a dead letter whose record has a newer attempt. Where that came to an end that stands there is nothing
// left to do. Else perhaps this very redrive had opened the record before it was interrupted, and a delivery whose
// message is gone has claimed it since, or failed it and could not write its dead letter: the message is sent again. One copy
// too many does no harm, one too few is a loss.
func (q Queue) wentOn(ctx context.Context, l driver.DeadLetter, r driver.Record, o Options, res *Result) (done bool, err error) {
	if done, send, err := q.byVersion(ctx, l, r, o, res); done || send || err != nil {
		return done, err
	}
	if r.State == driver.Completed || r.Disposed {
		res.Outcome, res.Why = Stale, fmt.Sprintf("the record is %s with a newer attempt", r.State)
		return true, q.remove(ctx, l, o)
	}
	res.Why = fmt.Sprintf("the record is %s with a newer attempt: sent again in case that one has no message", r.State)
	return false, nil
}

func (q Queue) sendAgain(ctx context.Context, l driver.DeadLetter, o Options, res Result) (Result, error) {
	m, err := again(l)
	if err != nil {
		return refuse(res, "%s", err), nil
	}
	res.Outcome, res.MessageID = Redriven, m.ID
	if o.DryRun {
		return res, nil
	}
	if _, err := q.send(ctx, l); err != nil {
		return res, err
	}
	return res, q.remove(ctx, l, o)
}

func (q Queue) send(ctx context.Context, l driver.DeadLetter) (id string, err error) {
	m, err := again(l)
	if err != nil {
		return "", fmt.Errorf("dead letter %s: %w", l.ID, err)
	}
	if err := q.sender.Send(ctx, m); err != nil {
		return "", fmt.Errorf("send the message of dead letter %s again: %w", l.ID, err)
	}
	return m.ID, nil
}

func (q Queue) remove(ctx context.Context, l driver.DeadLetter, o Options) error {
	if o.DryRun {
		return nil
	}
	if err := q.DeadLetters.DeleteDeadLetter(ctx, l.ID); err != nil {
		return fmt.Errorf("delete dead letter %s: %w", l.ID, err)
	}
	return nil
}

func refuse(r Result, format string, args ...any) Result {
	r.Outcome, r.Why = Refused, fmt.Sprintf(format, args...)
	return r
}

// The headers of a message that was sent again.
const (
	headerKey        = "idempotency-key"
	headerGeneration = "semel-generation"
)

// again is a dead letter's message made ready to be sent again: under a new broker id, which is the same when the same
// dead letter is sent again after a crash, and under the key that it had. Where the key was the broker's id, the id travels
// in the header idempotency-key from now on.
func again(l driver.DeadLetter) (driver.Message, error) {
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

// byVersion decides about the dead letter of a version (protocol section 6), which may be overtaken, or still to come. done: nothing is to be sent; send: the record is another version's and
// stays as it is; neither: the dead letter is the record's own.
func (q Queue) byVersion(ctx context.Context, l driver.DeadLetter, r driver.Record, o Options, res *Result) (done, send bool, err error) {
	w := &r.Watermark
	if l.Version == "" || o.Mode == Rerun && o.NewGeneration && r.State == driver.Completed && l.Version == w.Running {
		return false, false, nil
	}
	own := l.Version == w.Running && l.Kind != driver.DeadLetterLate
	_, g, _ := driver.DecideClaim(r, driver.Claim{Key: l.Key, Version: l.Version, Lease: time.Minute}, time.Now(), 0)
	switch {
	case !l.Version.Comparable(w.Running):
		*res = refuse(*res, "its key's record was made under another strategy: send the message under a key of its own, then discard the dead letter")
		return true, false, nil
	case g.Verdict == driver.Late && !own:
		*res = refuse(*res, "%s: bring its state in by hand, or discard it; or end the newer version first", g.Reason)
		return true, false, nil
	case l.Version < w.Applied, l.Version == w.Applied && r.Token == l.Token:
		res.Outcome, res.Why = Overtaken, fmt.Sprintf("version %s already processed (current: %s)", l.Version, w.Applied)
		return true, false, q.remove(ctx, l, o)
	case own && l.Version != w.Applied:
		return false, false, nil
	}
	res.Why = fmt.Sprintf("the record is %s with version %s, %s applied: version %s is sent again and takes its place or is skipped",
		r.State, w.Running, cmp.Or(w.Applied.String(), "none"), l.Version)
	return false, true, nil
}

// foreign tells that a dead letter is not about the version that its record is at: nothing of the record is to be changed.
func foreign(l driver.DeadLetter, r driver.Record) bool {
	return l.Version != "" && (l.Kind == driver.DeadLetterLate || l.Version != r.Watermark.Running)
}
