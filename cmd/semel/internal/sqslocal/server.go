// Package sqslocal is Amazon SQS on this machine for people and their programs: the fake of adapters/aws/awstest/fakesqs
// behind a socket, kept in an SQLite file when that is wanted, with faults that can be switched while it runs.
//
// A request takes this way: the old query protocol is translated to JSON (query.go). Faults on the wire strike first
// (awstest.Faults), then those of single messages and handles (strike.go). Then the fake carries it out. faults.go decides which
// request a fault hits.
package sqslocal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/web"
)

// FaultsPath is where faults are read (GET), set (PUT) and taken away (DELETE).
const FaultsPath = "/_semel/faults"

// maxBody bounds requests, in bytes: a batch of a mebibyte fits in base64 and with escapes.
const maxBody = 16 << 20

// operations are those of the protocol.
var operations = []string{
	"AddPermission", "CancelMessageMoveTask", "ChangeMessageVisibility", "ChangeMessageVisibilityBatch", "CreateQueue",
	"DeleteMessage", "DeleteMessageBatch", "DeleteQueue", "GetQueueAttributes", "GetQueueUrl", "ListDeadLetterSourceQueues",
	"ListMessageMoveTasks", "ListQueueTags", "ListQueues", "PurgeQueue", "ReceiveMessage", "RemovePermission", "SendMessage",
	"SendMessageBatch", "SetQueueAttributes", "StartMessageMoveTask", "TagQueue", "UntagQueue",
}

// Options of New.
type Options struct {
	// Region and Account stand in ARNs and queue URLs. Default: us-east-1, 000000000000.
	Region, Account string
	// Keeper keeps what the server holds; nil = in memory.
	Keeper fakesqs.Keeper
	// Faults go wrong. Required.
	Faults *Faults
	// Hosts are the names of the server; zero: those of the loopback interface.
	Hosts web.Hosts
	// Clock is the time of the service; nil = the machine's.
	Clock *awstest.Clock
}

// Server is a local SQS.
type Server struct {
	fake   *fakesqs.Server
	faults *Faults
	inner  http.Handler
	guard  http.Handler
}

// New makes a server, with the queues and messages that the keeper has.
func New(o Options) (*Server, error) {
	s := &Server{faults: o.Faults}
	fo := fakesqs.Options{Region: o.Region, Account: o.Account, Clock: o.Clock}
	if o.Keeper == nil {
		s.fake = fakesqs.New(fo)
	} else {
		var err error
		if s.fake, err = fakesqs.Open(fo, o.Keeper); err != nil {
			return nil, fmt.Errorf("open the queues: %w", err)
		}
	}
	s.inner = http.HandlerFunc(s.carry)
	s.guard = web.Guard(http.HandlerFunc(s.route), o.Hosts, notLetIn)
	return s, nil
}

// Create makes a queue and the one for its dead letters; those that are there already with the same attributes stay.
func (s *Server) Create(q NewQueue) error {
	set := q.Attributes
	if q.Dead != "" {
		more := map[string]string{}
		if set["ContentBasedDeduplication"] != "" {
			more["ContentBasedDeduplication"] = "true"
		}
		if !slices.Contains(s.Queues(), q.Dead) {
			more["MessageRetentionPeriod"] = "1209600"
		}
		arn, err := s.make(q.Dead, more)
		if err != nil {
			return err
		}
		policy, err := json.Marshal(map[string]any{"deadLetterTargetArn": arn, "maxReceiveCount": q.Receives})
		if err != nil {
			return fmt.Errorf("write the redrive policy of %q: %w", q.Name, err)
		}
		set["RedrivePolicy"] = string(policy)
	}
	_, err := s.make(q.Name, set)
	return err
}

func (s *Server) make(name string, set map[string]string) (string, error) {
	arn, err := s.fake.CreateQueue(name, set)
	if err != nil {
		return "", output.Usage("--create: %w", err).WithHint("a queue that is there keeps its attributes: name the same ones, or none")
	}
	return arn, s.fake.Flush()
}

// Queues are the names of the queues, sorted.
func (s *Server) Queues() []string { return s.fake.Queues() }

// Stop ends all long polls, and later ones do not wait.
func (s *Server) Stop() { s.fake.Stop() }

// Close saves what is not saved yet.
func (s *Server) Close() error { return s.fake.Flush() }

// ServeHTTP serves the protocol of SQS, and the faults at FaultsPath.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.guard.ServeHTTP(w, r) }

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == FaultsPath {
		s.serveFaults(w, r)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if isQuery(r) {
		s.serveQuery(w, r)
		return
	}
	s.serve(w, r)
}

// notLetIn responds in the protocol of the request, so that a client shows why.
func notLetIn(w http.ResponseWriter, r *http.Request, why web.Refusal) {
	switch {
	case r.URL.Path == FaultsPath:
		respond(w, why.Status, map[string]any{"error": map[string]string{"code": why.Code, "message": why.Message}})
	case isQuery(r):
		xmlError(w, why.Status, "Sender", "AccessDenied", why.Message)
	default:
		w.Header().Set("X-Amzn-Query-Error", "AccessDenied;Sender")
		respond(w, why.Status, map[string]string{"__type": "com.amazonaws.sqs#AccessDenied", "message": why.Message})
	}
}

// serve carries a request of the JSON protocol out, with what goes wrong on the wire.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	op := operation(r)
	if !s.faults.any() || !slices.Contains(operations, op) {
		s.inner.ServeHTTP(w, r)
		return
	}
	plan := s.wire(op)
	if len(plan.Schedule) == 0 {
		s.inner.ServeHTTP(w, r)
		return
	}
	out, err := awstest.NewFaults(plan).Wrap(awstest.Local(s.inner)).RoundTrip(r)
	if err != nil {
		panic(http.ErrAbortHandler) // the connection breaks, or its client is gone
	}
	defer func() { _ = out.Body.Close() }()
	for name, values := range out.Header {
		w.Header()[name] = values
	}
	if out.ContentLength >= 0 {
		w.Header().Set("Content-Length", fmt.Sprint(out.ContentLength))
	}
	w.WriteHeader(out.StatusCode)
	if _, err := io.Copy(w, out.Body); err != nil {
		if held, ok := w.(*recorder); ok {
			held.torn = true
			return
		}
		_ = http.NewResponseController(w).Flush() // what is there arrives
		panic(http.ErrAbortHandler)
	}
}

// serveFaults lists and changes the faults.
func (s *Server) serveFaults(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodDelete:
		s.faults.Clear()
	case http.MethodPut:
		var c Change
		if err := strict(http.MaxBytesReader(w, r.Body, 1<<16), &c); err != nil {
			refuse(w, http.StatusBadRequest, fmt.Errorf(`the body is no {"faults": {"duplicate": 0.2}}: %w`, err))
			return
		}
		if err := s.faults.Apply(c); err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT, DELETE")
		refuse(w, http.StatusMethodNotAllowed, fmt.Errorf("%s is no method of %s: GET, PUT and DELETE are", r.Method, FaultsPath))
		return
	}
	respond(w, http.StatusOK, s.faults.State())
}

// refuse writes an error response of our own pages, as the API of semel serve does.
func refuse(w http.ResponseWriter, status int, err error) {
	e := map[string]string{"code": "usage", "message": err.Error()}
	if hint := (*output.Error)(nil); errors.As(err, &hint) && hint.Hint != "" {
		e["hint"] = hint.Hint
	}
	respond(w, status, map[string]any{"error": e})
}

func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // to a client that may be gone
}

// ready is a context with the seed of a disorder, where one hits.
func (s *Server) ready(ctx context.Context, op string) context.Context {
	if h := s.faults.draw(Disorder, op); h != nil {
		return fakesqs.Disorderly(ctx, h.random.Uint64())
	}
	return ctx
}
