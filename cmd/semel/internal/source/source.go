// Package source makes messages to send: from lines, from envelopes, or out of thin air.
package source

import (
	"bufio"
	"bytes"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	mrand "math/rand/v2"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Source hands out messages until io.EOF. Other errors are the input's, and name the line.
type Source interface {
	Next() (driver.Message, error)
}

// Common is set on every message that does not say otherwise itself.
type Common struct {
	Headers map[string]string
	Group   string
	Delay   time.Duration
}

func (c Common) apply(m *driver.Message) {
	if m.ID == "" {
		m.ID = NewID(time.Now())
	}
	if m.Group == "" {
		m.Group = c.Group
	}
	if m.Delay == 0 {
		m.Delay = c.Delay
	}
	if len(c.Headers) > 0 {
		h := maps.Clone(c.Headers)
		maps.Copy(h, m.Headers)
		m.Headers = h
	}
}

// NewID is a UUID of version 7 (RFC 9562): 48 bits of milliseconds, then random.
func NewID(now time.Time) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16|uint64(b[6])<<8|uint64(b[7]))
	return uuid(b, 7)
}

func uuid(b [16]byte, version byte) string {
	b[6] = b[6]&0x0f | version<<4
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Lines makes one message of each line, byte for byte without its newline.
type Lines struct {
	Common
	r *bufio.Reader
	n int
}

// NewLines reads lines from r.
func NewLines(r io.Reader, c Common) *Lines {
	return &Lines{Common: c, r: bufio.NewReaderSize(r, 64<<10)}
}

func (l *Lines) line() ([]byte, error) {
	b, err := l.r.ReadBytes('\n')
	if len(b) == 0 && err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("read line %d: %w", l.n+1, err)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read line %d: %w", l.n+1, err)
	}
	l.n++
	return bytes.TrimSuffix(b, []byte{'\n'}), nil
}

// Next implements Source.
func (l *Lines) Next() (driver.Message, error) {
	b, err := l.line()
	if err != nil {
		return driver.Message{}, err
	}
	m := driver.Message{Body: b}
	l.apply(&m)
	return m, nil
}

// Envelopes reads one JSON object a line.
type Envelopes struct{ Lines }

// NewEnvelopes reads envelopes from r.
func NewEnvelopes(r io.Reader, c Common) *Envelopes { return &Envelopes{*NewLines(r, c)} }

// Envelope is a message as a JSON object. Body is a string, whose text is the body, or any other JSON value, whose own
// text is the body.
type Envelope struct {
	ID         string            `json:"id,omitempty"`
	Group      string            `json:"group,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	DelayMS    int64             `json:"delay_ms,omitempty"`
	Body       json.RawMessage   `json:"body,omitempty"`
	BodyBase64 *string           `json:"body_base64,omitempty"`
}

// Next implements Source. Empty lines are skipped.
func (e *Envelopes) Next() (driver.Message, error) {
	for {
		b, err := e.line()
		if err != nil {
			return driver.Message{}, err
		}
		if b = bytes.TrimSpace(b); len(b) == 0 {
			continue
		}
		m, err := parseEnvelope(b)
		if err != nil {
			return m, fmt.Errorf("line %d: %w", e.n, err)
		}
		e.apply(&m)
		return m, nil
	}
}

func parseEnvelope(b []byte) (driver.Message, error) {
	var v Envelope
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		return driver.Message{}, fmt.Errorf("not an envelope {id, group, headers, delay_ms, body | body_base64}: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return driver.Message{}, errors.New("more than one JSON object on a line")
	}
	return v.Message()
}

// Message is the message that the envelope describes.
func (v *Envelope) Message() (driver.Message, error) {
	m := driver.Message{ID: v.ID, Group: v.Group, Headers: v.Headers}
	switch {
	case v.Body != nil && v.BodyBase64 != nil:
		return m, errors.New("give body or body_base64, not both")
	case v.DelayMS < 0 || v.DelayMS > math.MaxInt64/int64(time.Millisecond):
		return m, errors.New("delay_ms is negative or too long")
	case v.BodyBase64 != nil:
		body, err := base64.StdEncoding.DecodeString(*v.BodyBase64)
		if err != nil {
			return m, fmt.Errorf("body_base64: %w", err)
		}
		m.Body = body
	case len(v.Body) > 0 && v.Body[0] == '"':
		var s string
		if err := json.Unmarshal(v.Body, &s); err != nil {
			return m, fmt.Errorf("body: %w", err)
		}
		m.Body = []byte(s)
	default:
		m.Body = v.Body
	}
	m.Delay = time.Duration(v.DelayMS) * time.Millisecond
	return m, nil
}

// Schema is the JSON schema (draft 2020-12) of the bodies that [Synthetic] makes.
//
//go:embed message.schema.json
var Schema []byte

// Synthetic describes made-up messages: {"id":"<uuid>","work":1…1000}, poison ones with "poison":true. Each carries its
// id in the header idempotency-key, so that a duplicate is a second message of the same key.
type Synthetic struct {
	N           int
	PoisonCount int     // that many, at random places
	PoisonEvery int     // every so-manieth; overrides PoisonCount
	Duplicates  float64 // this share of the messages is sent twice
	SameKey     bool    // all are one message, sent N times
	Seed        uint64
}

// Check refuses what cannot be made; the error names the flag.
func (s Synthetic) Check() error {
	switch {
	case s.N < 1:
		return errors.New("--n must be 1 or more")
	case s.PoisonCount < 0 || s.PoisonCount > s.N:
		return fmt.Errorf("--poison-count must be between 0 and --n (%d)", s.N)
	case s.PoisonEvery < 0:
		return errors.New("--poison-every must not be negative")
	case s.Duplicates < 0 || s.Duplicates > 1 || math.IsNaN(s.Duplicates):
		return errors.New("--duplicate-rate must be between 0 and 1")
	}
	return nil
}

// Made hands out synthetic messages and counts them.
type Made struct {
	Common
	s               Synthetic
	rng             *mrand.Rand
	i               int
	again           *driver.Message // the second copy of a duplicate, sent a little later
	poison, twice   map[int]bool
	same            driver.Message
	Poison, Doubled int
}

// New starts the generator: the same seed makes the same bodies, poison and duplicates.
func (s Synthetic) New(c Common) *Made {
	m := &Made{Common: c, s: s, rng: mrand.New(mrand.NewPCG(s.Seed, 0x73656d656c))}
	m.poison = m.pick(s.PoisonCount)
	m.twice = m.pick(int(math.Round(s.Duplicates * float64(s.N))))
	m.same = m.message(false)
	return m
}

// pick chooses exactly n of the indices.
func (m *Made) pick(n int) map[int]bool {
	out := make(map[int]bool, n)
	for _, i := range m.rng.Perm(m.s.N)[:n] {
		out[i] = true
	}
	return out
}

func (m *Made) message(poison bool) driver.Message {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], m.rng.Uint64())
	binary.BigEndian.PutUint64(b[8:], m.rng.Uint64())
	id, work := uuid(b, 4), 1+m.rng.IntN(1000)
	body := fmt.Sprintf(`{"id":%q,"work":%d}`, id, work)
	if poison {
		body = fmt.Sprintf(`{"id":%q,"work":%d,"poison":true}`, id, work)
	}
	return driver.Message{Body: []byte(body), Headers: map[string]string{"idempotency-key": id}}
}

func (m *Made) poisoned(i int) bool {
	if m.s.PoisonEvery > 0 {
		return (i+1)%m.s.PoisonEvery == 0
	}
	return m.poison[i]
}

// Next implements Source.
func (m *Made) Next() (driver.Message, error) {
	if m.again != nil {
		d := *m.again
		m.again = nil
		m.Doubled++
		m.apply(&d)
		return d, nil
	}
	if m.i == m.s.N {
		return driver.Message{}, io.EOF
	}
	i := m.i
	m.i++
	msg := m.same
	if !m.s.SameKey {
		msg = m.message(m.poisoned(i))
		if m.poisoned(i) {
			m.Poison++
		}
	}
	if m.twice[i] {
		d := msg
		m.again = &d
	}
	m.apply(&msg)
	return msg, nil
}
