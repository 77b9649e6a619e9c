package nats

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/semel-dev/semel/driver"
)

// The headers of this package. A producer that knows nothing of them sends messages that arrive well, and a consumer that
// knows nothing of them reads body and headers.
const (
	headerID      = "Semel-Id"         // the message's ID
	headerGroup   = "Semel-Group"      // its group
	headerRest    = "Semel-Headers"    // JSON of restOf
	headerDue     = "Semel-Not-Before" // milliseconds since 1970: a delay
	headerSubject = "Nats-Subject"     // of a delivery: its subject; it does not travel as a header
)

// restOf is what headers of NATS cannot keep: they are lines of text, and those that begin with Nats- mean something to the
// server.
type restOf struct {
	Headers map[string]string `json:"headers,omitempty"`
	ID      string            `json:"id,omitempty"`
	Group   string            `json:"group,omitempty"`
}

func writeHeaders(h nats.Header, m *driver.Message) error {
	if err := driver.CheckHeaders(m.Headers); err != nil {
		return err
	}
	if !utf8.ValidString(m.ID) || !utf8.ValidString(m.Group) {
		return fmt.Errorf("its ID %q or its group %q is not UTF-8: encode it (percent or base64)", m.ID, m.Group)
	}
	rest := restOf{ID: m.ID, Group: m.Group, Headers: map[string]string{}}
	if m.ID == "" {
		rest.ID = driver.NewMessageID()
	}
	if clean(rest.ID) {
		h.Set(headerID, rest.ID)
		rest.ID = ""
	}
	if clean(rest.Group) {
		h.Set(headerGroup, rest.Group)
		rest.Group = ""
	}
	for k, v := range m.Headers {
		switch {
		case strings.EqualFold(k, headerSubject):
		case legalName(k) && clean(v):
			h.Set(k, v)
		default:
			rest.Headers[k] = v
		}
	}
	if len(rest.Headers) > 0 || rest.ID != "" || rest.Group != "" {
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

// unpack is the counterpart of pack. A header that it cannot read stays as the producer wrote it.
func (q *Queue) unpack(in *nats.Msg, stored time.Time) (m driver.Message, due time.Time) {
	m = driver.Message{Queue: q.name(), Body: in.Data, SentAt: stored, Headers: make(map[string]string, len(in.Header)+1)}
	if m.Body == nil {
		m.Body = []byte{}
	}
	var rest restOf
	for k, vs := range in.Header {
		v := strings.Join(vs, ", ")
		switch k {
		case headerID:
			m.ID = v
		case headerGroup:
			m.Group = v
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
	maps.Copy(m.Headers, rest.Headers)
	m.ID = cmp.Or(rest.ID, m.ID, in.Header.Get(nats.MsgIdHdr))
	m.Group = cmp.Or(rest.Group, m.Group)
	m.Headers[headerSubject] = in.Subject
	return m, due
}

// token makes a name of any text that subjects and buckets take.
func token(s string) string {
	if s != "" && s[0] != '_' && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_')
	}) {
		return s
	}
	return "_" + base64.RawURLEncoding.EncodeToString([]byte(s))
}
