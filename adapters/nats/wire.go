package nats

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/semel-dev/semel/driver"
)

// The headers of this package. A producer that knows nothing of them sends messages that arrive well, and a consumer that
// knows nothing of them reads body and headers.
const (
	headerID      = "Semel-Id"         // the message's ID, percent-encoded
	headerGroup   = "Semel-Group"      // its group, percent-encoded
	headerRest    = "Semel-Headers"    // JSON of the headers that NATS cannot keep, in base64
	headerDue     = "Semel-Not-Before" // milliseconds since 1970: a delay
	headerSubject = "Nats-Subject"     // of a delivery: its subject; it does not travel as a header
)

// writeHeaders writes a message's headers. Those of NATS are lines of text, and those that begin with Nats- mean something to
// the server.
func writeHeaders(h nats.Header, m *driver.Message) error {
	if err := driver.CheckHeaders(m.Headers); err != nil {
		return err
	}
	h.Set(headerID, url.PathEscape(cmp.Or(m.ID, driver.NewMessageID())))
	if m.Group != "" {
		h.Set(headerGroup, url.PathEscape(m.Group))
	}
	rest := map[string]string{}
	for k, v := range m.Headers {
		switch {
		case strings.EqualFold(k, headerSubject):
		case legalName(k) && clean(v):
			h.Set(k, v)
		default:
			rest[k] = v
		}
	}
	if len(rest) > 0 {
		text, _ := json.Marshal(rest) // never fails
		h.Set(headerRest, base64.StdEncoding.EncodeToString(text))
	}
	return nil
}

// legalName reports a header name that travels as it is.
func legalName(s string) bool {
	low := strings.ToLower(s)
	return s != "" && !strings.HasPrefix(low, "nats-") && !strings.HasPrefix(low, "semel-") && low != "status" && low != "description" &&
		!strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' })
}

// clean reports text that a header line keeps unchanged.
func clean(s string) bool {
	return s != "" && s[0] != ' ' && s[len(s)-1] != ' ' && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f })
}

// unpack is the counterpart of pack, for the message that the stream stored at a time under a sequence. A header that it
// cannot read stays as the producer wrote it.
func (q *Queue) unpack(in *nats.Msg, stored time.Time, seq uint64) (m driver.Message, due time.Time) {
	m = driver.Message{Queue: q.name(), Body: in.Data, SentAt: stored, Headers: make(map[string]string, len(in.Header)+1)}
	if m.Body == nil {
		m.Body = []byte{}
	}
	var rest map[string]string
	for k, vs := range in.Header {
		v := strings.Join(vs, ", ")
		switch k {
		case headerID:
			m.ID = unescape(v)
		case headerGroup:
			m.Group = unescape(v)
		case headerDue:
			if ms, err := strconv.ParseInt(v, 10, 64); err == nil {
				due = time.UnixMilli(ms)
			}
		case headerRest:
			text, err := base64.StdEncoding.DecodeString(v)
			if err != nil || json.Unmarshal(text, &rest) != nil {
				m.Headers[k] = v
			}
		default:
			m.Headers[k] = v
		}
	}
	maps.Copy(m.Headers, rest)
	if m.ID = cmp.Or(m.ID, in.Header.Get(nats.MsgIdHdr)); m.ID == "" {
		m.ID = fmt.Sprintf("nats|%s|%d|%d", q.stream, q.is.Load().created.UnixNano(), seq)
	}
	m.Headers[headerSubject] = in.Subject
	return m, due
}

func unescape(s string) string {
	if text, err := url.PathUnescape(s); err == nil {
		return text
	}
	return s
}
