package fakesfn

import (
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/internal/awsjson"
)

// The types of state machines.
const (
	Standard = "STANDARD"
	Express  = "EXPRESS"
)

// NameKept is how long after an execution closed its name stays taken, and its description there.
//
// https://docs.aws.amazon.com/step-functions/latest/apireference/API_StartExecution.html ("You can reuse names after 90 days")
const NameKept = 90 * 24 * time.Hour

// Options of a Server. The zero value is the service in region us-east-1, on the machine's clock.
type Options struct {
	// Clock is the time of the service. Defaults to awstest.System().
	Clock *awstest.Clock
	// Region and Account stand in ARNs. They default to awstest.Region and awstest.Account.
	Region, Account string
	// Lag is for how long DescribeExecution and ListExecutions do not know a new execution: they are eventually consistent.
	Lag time.Duration
}

// Server is AWS Step Functions. It is an http.Handler, and its methods may be called concurrently. Two servers share
// nothing.
type Server struct {
	o    Options
	json awsjson.Service

	mu       sync.Mutex
	machines map[string]*machine // by name
	calls    map[string]int
	denied   map[string]bool
}

// New makes a server without state machines.
func New(o Options) *Server {
	if o.Clock == nil {
		o.Clock = awstest.System()
	}
	if o.Region == "" {
		o.Region = awstest.Region
	}
	if o.Account == "" {
		o.Account = awstest.Account
	}
	s := &Server{o: o, machines: map[string]*machine{}, calls: map[string]int{}, denied: map[string]bool{}}
	s.json = awsjson.Service{
		Target: "AWSStepFunctions", ContentType: "application/x-amz-json-1.0", MaxBody: 4 << 20,
		Operations: map[string]awsjson.Operation{
			"CreateStateMachine":   awsjson.Op(s.createStateMachine),
			"DeleteStateMachine":   awsjson.Op(s.deleteStateMachine),
			"DescribeStateMachine": awsjson.Op(s.describeStateMachine),
			"StartExecution":       awsjson.Op(s.startExecution),
			"DescribeExecution":    awsjson.Op(s.describeExecution),
			"StopExecution":        awsjson.Op(s.stopExecution),
			"ListExecutions":       awsjson.Op(s.listExecutions),
		},
	}
	return s
}

// ServeHTTP serves the AWS JSON protocol.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := awsjson.Name(r)
	s.mu.Lock()
	s.calls[name]++
	denied := s.denied[name]
	s.mu.Unlock()
	if denied {
		refusal := s.json
		refusal.Operations = map[string]awsjson.Operation{name: deny}
		refusal.ServeHTTP(w, r)
		return
	}
	s.json.ServeHTTP(w, r)
}

// Deny denies the permission for an operation ("StartExecution"), or grants it again, as when a role is fixed later.
func (s *Server) Deny(operation string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied[operation] = on
}

// Calls returns the number of calls of an operation ("StartExecution"), refused calls included.
func (s *Server) Calls(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[operation]
}

// AllCalls returns Calls for every operation that was called.
func (s *Server) AllCalls() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.calls)
}
