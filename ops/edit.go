package ops

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// headerEdited marks the message of an edited dead letter until it is redriven: its value is the fingerprint of the new
// payload, in hexadecimal digits, "" = it is not compared.
const headerEdited = "semel-edited"

// Edit is what to change in the message of a dead letter.
type Edit struct {
	Body    []byte // nil = as it is
	Headers map[string]string
	// Key and Fingerprint are those of the worker: an edit must not change the key, and the record is to expect the new
	// payload. Key defaults to key.ByID.
	Key         key.Func
	Fingerprint key.FingerprintFunc // nil = payloads are not compared
	// Version is the worker's too, where keys have versions: an edit must not change it.
	Version key.VersionFunc
	// DryRun writes nothing: the result is what would happen.
	DryRun bool
}

// RefusedError says why a dead letter is not edited, and what to do instead.
type RefusedError struct{ Why, Hint string }

func (e *RefusedError) Error() string { return e.Why }

// NotUncertainError reports that a key has nothing to resolve.
type NotUncertainError struct {
	Key   string
	State driver.State
}

func (e *NotUncertainError) Error() string {
	return fmt.Sprintf("key %q is %s: only UNCERTAIN keys are resolved", e.Key, e.State)
}

// resolve is the command that decides about an uncertain key.
func (q Queue) resolve(k driver.Key) string {
	var c CLI
	if q.CLI != nil {
		c = *q.CLI
	}
	if c.Consumer == "" && k.Consumer != q.Name {
		c.Consumer = k.Consumer
	}
	return c.onKey(k, "resolve", "--as", "completed")
}

// Edit puts an edited copy of a dead letter in its place (FM81). The copy has an id of its own, which is the same when the same
// edit is made again after a crash: first it is written, then the old dead letter is deleted. Redriving it gives the record
// the fingerprint of the new payload, and the next generation. The error is a [RefusedError] if the edit would make another message.
func (q Queue) Edit(ctx context.Context, l driver.DeadLetter, e Edit) (driver.DeadLetter, error) {
	if l.Kind != driver.DeadLetterFailed {
		return l, &RefusedError{
			fmt.Sprintf("it is a dead letter of kind %s: only those of kind failed are edited", l.Kind),
			map[driver.DeadLetterKind]string{
				driver.DeadLetterUncertain: q.resolve(l.Key) + " first (or --as retry, --as failed)",
				driver.DeadLetterMismatch: "discard it, and send its message under a key of its own (" +
					q.CLI.DeadLetters("show", l.ID, "--body") + ")",
			}[l.Kind],
		}
	}
	if e.Key == nil {
		e.Key = key.ByID
	}
	after := l
	after.Message.Headers = maps.Clone(l.Message.Headers)
	if after.Message.Headers == nil {
		after.Message.Headers = map[string]string{}
	}
	delete(after.Message.Headers, headerEdited)
	if e.Body != nil {
		after.Message.Body = e.Body
	}
	for k, v := range e.Headers {
		if v == "" {
			delete(after.Message.Headers, k)
			continue
		}
		after.Message.Headers[k] = v
	}
	if bytes.Equal(after.Message.Body, l.Message.Body) && maps.Equal(after.Message.Headers, l.Message.Headers) {
		return l, nil
	}
	if err := q.mark(ctx, l, &after, e); err != nil {
		return l, err
	}
	after.ID = editedID(l.ID, after.Message)
	if e.DryRun {
		return after, nil
	}
	if err := q.DeadLetters.PutDeadLetter(ctx, after); err != nil {
		return l, fmt.Errorf("write the edited dead letter: %w", err)
	}
	return after, q.remove(ctx, l, Options{})
}

// mark checks that the edited message still has the dead letter's key, and writes its fingerprint into it.
func (q Queue) mark(ctx context.Context, before driver.DeadLetter, after *driver.DeadLetter, e Edit) error {
	if before.Key.Raw == "" {
		return nil // it had no usable key: it is redriven as a new message
	}
	old := before.Message
	old.Headers = maps.Clone(old.Headers)
	delete(old.Headers, headerEdited)
	was, err := e.Key(&old)
	if err != nil || was != before.Key.Raw {
		return &RefusedError{
			fmt.Sprintf("its key %q is not the one that --key makes of its message (%s)", before.Key.Raw, oneOf(was, err)),
			"--key as the worker has it",
		}
	}
	if now, err := e.Key(&after.Message); err != nil || now != was {
		return &RefusedError{
			fmt.Sprintf("the edit changes its key from %q to %s: that is another message", was, oneOf(now, err)),
			q.CLI.DeadLetters("discard", before.ID) + ", then semel send the new message",
		}
	}
	if err := q.sameVersion(before, &after.Message, e); err != nil {
		return err
	}
	fp := driver.Fingerprint("")
	if e.Fingerprint != nil {
		if fp, err = e.Fingerprint(&after.Message); err != nil {
			return fmt.Errorf("fingerprint of the edited message: %w", err)
		}
	}
	r, there, err := q.record(ctx, before.Key)
	if err != nil {
		return err
	}
	if there && r.Fingerprint != "" && !sameRecipe(r.Fingerprint, fp) {
		return &RefusedError{"its record has a fingerprint that was made in another way", "--fingerprint as the worker has it"}
	}
	after.Message.Headers[headerEdited] = hex.EncodeToString([]byte(fp))
	return nil
}

// sameVersion checks that the edited message still is of the dead letter's version.
func (q Queue) sameVersion(before driver.DeadLetter, m *driver.Message, e Edit) error {
	if before.Version == "" {
		return nil
	}
	if e.Version == nil {
		return &RefusedError{"its key has versions", "--strategy as the worker has it"}
	}
	if v, err := e.Version(m); err != nil || v != before.Version {
		return &RefusedError{
			fmt.Sprintf("the edit changes its version from %s to %s: that is another message", before.Version, oneOf(v.String(), err)),
			q.CLI.DeadLetters("discard", before.ID) + ", then semel send the new message",
		}
	}
	return nil
}

func oneOf(key string, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%q", key)
}

func sameRecipe(f, g driver.Fingerprint) bool {
	const n = driver.FingerprintRecipe
	return len(f) >= n && len(g) >= n && f[:n] == g[:n]
}

// editedID follows from the old id and what it became.
func editedID(id string, m driver.Message) string {
	h := sha256.New()
	for _, s := range []string{"semel-edited-dead-letter-1", id, headersText(m.Headers), string(m.Body)} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func headersText(h map[string]string) string {
	text := ""
	for _, k := range slices.Sorted(maps.Keys(h)) {
		text += fmt.Sprintf("%d:%s%d:%s", len(k), k, len(h[k]), h[k])
	}
	return text
}

// edited takes the mark out of a dead letter's message and returns the fingerprint that the record is to have; "" = as it is.
func edited(l driver.DeadLetter) (driver.DeadLetter, driver.Fingerprint, error) {
	mark, ok := l.Message.Headers[headerEdited]
	if !ok {
		return l, "", nil
	}
	fp, err := hex.DecodeString(mark)
	if err != nil {
		return l, "", errors.New("its header " + headerEdited + " is not the one that semel dlq edit wrote")
	}
	l.Message.Headers = maps.Clone(l.Message.Headers)
	delete(l.Message.Headers, headerEdited)
	return l, driver.Fingerprint(fp), nil
}
