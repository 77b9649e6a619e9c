package key

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/canonjson"
	"github.com/semel-dev/semel/internal/jsonptr"
)

// content hashes bodies. It is safe for concurrent use.
type content struct{ pool sync.Pool }

type contentBuffer struct {
	enc canonjson.Encoder
	out []byte
}

// maxPooled is the largest body whose buffer is reused.
const maxPooled = 64 << 10

// sum returns the SHA-256 of the canonical form of a JSON body, or of the bytes of any other body.
func (c *content) sum(body []byte) (sum [sha256.Size]byte, isJSON bool) {
	b, _ := c.pool.Get().(*contentBuffer)
	if b == nil {
		b = new(contentBuffer)
	}
	out, err := b.enc.Append(b.out[:0], body)
	if err != nil {
		sum = sha256.Sum256(body)
	} else {
		sum, b.out = sha256.Sum256(out), out
	}
	if len(body) <= maxPooled {
		c.pool.Put(b)
	}
	return sum, err == nil
}

// FromBody makes the key from the content: json: and the SHA-256 of the body's canonical JSON, so that white space and the
// order of members do not matter. If the body has no canonical form (it is not JSON, or not I-JSON: a duplicate member, lone
// surrogates, nesting beyond 512), the key is raw: and the SHA-256 of its bytes.
//
// Two operations with the same content become one, so use FromBody only if the body contains an ID or a time of its own. An
// empty body and null have no key (ErrMissing). An empty string, array or object is an error, as in [FromJSON].
func FromBody() Func {
	c := new(content)
	return func(m *driver.Message) (string, error) {
		body := bytes.TrimSpace(m.Body)
		if len(body) == 0 || string(body) == "null" {
			return "", noKey(m, "the body is empty or null")
		}
		sum, isJSON := c.sum(m.Body)
		if isJSON && isBlank(body) {
			return "", badKey(m, "the body is %s, and it would be one key for all messages without content: send an id", emptyKind(body))
		}
		var text [5 + 2*sha256.Size]byte
		n := copy(text[:], "raw:")
		if isJSON {
			n = copy(text[:], "json:")
		}
		n += hex.Encode(text[n:], sum[:])
		return string(text[:n]), nil
	}
}

// The spellings of CloudEvents attributes as headers: HTTP and NATS, Kafka, AMQP (two).
var cloudEventSpellings = [...]struct{ id, source string }{
	{"ce-id", "ce-source"}, {"ce_id", "ce_source"},
	{"cloudEvents:id", "cloudEvents:source"}, {"cloudEvents_id", "cloudEvents_source"},
}

func cloudEventHeaders(m *driver.Message) (source, id string, ok bool) {
	for _, s := range &cloudEventSpellings {
		if id = m.Header(s.id); id == "" {
			continue
		}
		if source = m.Header(s.source); source != "" {
			return source, id, true
		}
	}
	return "", "", false
}

// FromCloudEvent makes the key from source and id of a CloudEvent, which are unique together (CloudEvents 1.0, section "id").
// In binary mode it reads headers (ce-id and ce-source, and also Kafka's ce_id and AMQP's cloudEvents:id), in structured mode
// the JSON body. Both modes of one event give the same key. Header values are used byte by byte. A message that is not a
// CloudEvent has no key (ErrMissing). A batch of events is an error.
func FromCloudEvent() Func {
	version, id, source := mustPointer("/specversion"), mustPointer("/id"), mustPointer("/source")
	return func(m *driver.Message) (string, error) {
		if s, i, ok := cloudEventHeaders(m); ok {
			return keyOf(m, s, i)
		}
		if ct := m.Header("content-type"); strings.HasPrefix(strings.ToLower(ct), "application/cloudevents-batch") {
			return "", badKey(m, "a batch of CloudEvents: send one event a message")
		}
		var parts [3]string
		for n, p := range [...]jsonptr.Pointer{version, source, id} {
			find := p.FindValid
			if n == 0 {
				find = p.Find // validates the body, for the others too
			}
			raw, err := find(m.Body)
			if err != nil {
				return "", pointerError(m, "not a CloudEvent: no headers ce-id and ce-source, and ", p, err)
			}
			if raw[0] != '"' {
				return "", badKey(m, "the value at %q of a CloudEvent is not a string", p)
			}
			if parts[n], err = canonjson.Unquote(raw); err != nil {
				return "", badKey(m, "the value at %q: %v", p, err)
			}
			if parts[n] == "" {
				return "", badKey(m, "the value at %q of a CloudEvent is empty", p)
			}
		}
		return keyOf(m, parts[1:]...)
	}
}

func mustPointer(s string) jsonptr.Pointer {
	p, err := jsonptr.Parse(s)
	if err != nil {
		panic(err)
	}
	return p
}
