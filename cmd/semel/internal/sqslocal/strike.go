package sqslocal

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest"
)

// object is a JSON object whose members are passed on as they are.
type object map[string]json.RawMessage

// recorder holds a response back.
type recorder struct {
	head   http.Header
	status int
	body   bytes.Buffer
	torn   bool // the rest of the body did not come
}

func (a *recorder) Header() http.Header         { return a.head }
func (a *recorder) WriteHeader(status int)      { a.status = status }
func (a *recorder) Write(b []byte) (int, error) { return a.body.Write(b) }

// pass sends the response on.
func (a *recorder) pass(w http.ResponseWriter) {
	for name, values := range a.head {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes())
}

// record carries out a request and holds its response back.
func (s *Server) record(r *http.Request) *recorder {
	a := &recorder{head: http.Header{}, status: http.StatusOK}
	s.fake.ServeHTTP(a, r)
	return a
}

// carry carries a request out, with what goes wrong with single messages and handles.
func (s *Server) carry(w http.ResponseWriter, r *http.Request) {
	op := operation(r)
	if !s.faults.any() || !slices.Contains(receives, op) && !slices.Contains(settles, op) {
		s.fake.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil { // it is too long: the fake refuses it
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), r.Body))
		s.fake.ServeHTTP(w, r)
		return
	}
	r = r.Clone(s.ready(r.Context(), op))
	r.Body = io.NopCloser(bytes.NewReader(body))
	var in object
	switch {
	case json.Unmarshal(body, &in) != nil:
		s.fake.ServeHTTP(w, r)
	case op == "ReceiveMessage":
		s.received(w, r, op, in)
	case in["Entries"] != nil:
		s.settledMany(w, r, op, in)
	default:
		s.settled(w, r, op)
	}
}

// received lets messages that are handed out now come again, or at another time than they should.
func (s *Server) received(w http.ResponseWriter, r *http.Request, op string, in object) {
	a := s.record(r)
	defer a.pass(w)
	var out struct {
		Messages []struct{ MessageID string }
	}
	if a.status != http.StatusOK || json.Unmarshal(a.body.Bytes(), &out) != nil {
		return
	}
	queue := queueOf(in)
	for _, m := range out.Messages {
		if s.faults.draw(Duplicate, op) != nil {
			s.fake.Duplicate(queue, m.MessageID)
		}
		if h := s.faults.draw(EarlyVisible, op); h != nil {
			if h.by == 0 {
				h.by = 12 * time.Hour // the longest there is
			}
			s.fake.Shift(queue, m.MessageID, -h.by)
		}
		if h := s.faults.draw(LateVisible, op); h != nil {
			s.fake.Shift(queue, m.MessageID, h.by)
		}
	}
	_ = s.fake.Flush() // what fails is said to the next request
}

// queueOf is the name of the queue that a request is for.
func queueOf(in object) string {
	var raw string
	_ = json.Unmarshal(in["QueueUrl"], &raw)
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return path.Base(u.Path)
}

const (
	staleCode    = "ReceiptHandleIsInvalid"
	staleMessage = "The input receipt handle is not a valid receipt handle."
)

// settled lets a deletion get lost, or a handle be refused.
func (s *Server) settled(w http.ResponseWriter, r *http.Request, op string) {
	switch {
	case s.faults.draw(StaleHandle, op) != nil:
		w.Header().Set("X-Amzn-Query-Error", staleCode+";Sender")
		reply(w, http.StatusNotFound, map[string]string{"__type": "com.amazonaws.sqs#" + staleCode, "message": staleMessage})
	case s.faults.draw(DroppedDelete, op) != nil:
		reply(w, http.StatusOK, struct{}{})
	default:
		s.fake.ServeHTTP(w, r)
	}
}

func reply(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // no such value
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// settledMany is settled for a batch: the rest of it is carried out. A batch that the service refuses as a whole is left to it.
func (s *Server) settledMany(w http.ResponseWriter, r *http.Request, op string, in object) {
	var entries, kept []json.RawMessage
	if json.Unmarshal(in["Entries"], &entries) != nil || len(entries) == 0 || len(entries) > 10 {
		s.fake.ServeHTTP(w, r)
		return
	}
	done, failed := []any{}, []any{}
	for _, e := range entries {
		var entry struct {
			ID string `json:"Id"`
		}
		_ = json.Unmarshal(e, &entry)
		switch {
		case s.faults.draw(StaleHandle, op) != nil:
			failed = append(failed, map[string]any{"Id": entry.ID, "Code": staleCode, "Message": staleMessage, "SenderFault": true})
		case s.faults.draw(DroppedDelete, op) != nil:
			done = append(done, map[string]string{"Id": entry.ID})
		default:
			kept = append(kept, e)
		}
	}
	if len(kept) == len(entries) {
		s.fake.ServeHTTP(w, r)
		return
	}
	if len(kept) > 0 {
		in["Entries"] = encode(kept)
		body := encode(in)
		r.Body = io.NopCloser(bytes.NewReader(body))
		a := s.record(r)
		var out struct{ Successful, Failed []any }
		if a.status != http.StatusOK || json.Unmarshal(a.body.Bytes(), &out) != nil {
			a.pass(w)
			return
		}
		done, failed = append(done, out.Successful...), append(failed, out.Failed...)
	}
	out := map[string]any{"Successful": done}
	if len(failed) > 0 {
		out["Failed"] = failed
	}
	reply(w, http.StatusOK, out)
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // no such value
	}
	return b
}

// operation is what a request asks for.
func operation(r *http.Request) string {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	return op
}

// onWire are the faults of a connection, of which at most one hits a request, and what awstest calls them.
var onWire = []struct {
	name string
	kind awstest.Kind
	// either: it is carried out or not.
	either bool
}{
	{name: Cut, kind: awstest.Before},
	{name: Throttle, kind: awstest.Throttled},
	{name: Unavailable, kind: awstest.Unavailable},
	{name: Internal, kind: awstest.Internal, either: true},
	{name: LostResponse, kind: awstest.After},
	{name: Torn, kind: awstest.Torn},
	{name: Partial, kind: awstest.Partial, either: true},
}

// wire is what goes wrong with the connection of one request: a plan with nothing but it.
func (s *Server) wire(op string) awstest.Plan {
	var p awstest.Plan
	if h := s.faults.draw(Delay, op); h != nil {
		p.Schedule = append(p.Schedule, awstest.Fault{
			Operation: op, Call: 1, Kind: awstest.Delay, By: h.by, Done: h.random.IntN(2) == 0,
		})
	}
	for _, f := range onWire {
		if h := s.faults.draw(f.name, op); h != nil {
			p.Seed = h.random.Uint64()
			p.Schedule = append(p.Schedule, awstest.Fault{
				Operation: op, Call: 1, Kind: f.kind, Done: f.either && h.random.IntN(2) == 0,
			})
			break
		}
	}
	return p
}
