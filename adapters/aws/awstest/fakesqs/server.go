package fakesqs

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/internal/awsjson"
)

// Mode selects what an old receipt handle of a standard queue can do after another receive, and how far a message in flight
// blocks its group.
type Mode uint8

const (
	// AWS is the service: an old handle still changes the visibility of the new holder's delivery, and may delete it. A late
	// extension is reported as a success and does nothing.
	AWS Mode = iota
	// Strict is what programs often expect of the service: only the newest handle is valid, and only while the message is in
	// flight, and nothing of a FIFO group is delivered while any message of it is in flight. A program that needs this mode
	// is broken. The mode exists to show the difference.
	Strict
)

// Options of a Server. The zero value is the service in region us-east-1, on the machine's clock.
type Options struct {
	// Clock is the time of the service. Defaults to awstest.System().
	Clock *awstest.Clock
	// Mode defaults to AWS.
	Mode Mode
	// BaseURL is what queue URLs begin with, without a slash at the end. Defaults to scheme and host of the request that
	// asks for one.
	BaseURL string
	// Region and Account stand in ARNs and queue URLs. They default to awstest.Region and awstest.Account.
	Region, Account string
	// MaxInFlight is how many messages of one queue may be in flight. Defaults to 120,000.
	MaxInFlight int
	// KeepStaleDeletes makes a delete with an old handle of a standard queue succeed without deleting anything, which is
	// what the API reference says. Otherwise the message is gone, which is what the service was seen to do.
	KeepStaleDeletes bool
	// Disorder is the seed of a standard queue's disorder, 0 for none: messages are handed out in no order, fewer of them
	// than are asked for and are there, and a short poll may find none of them. FIFO queues have order.
	Disorder uint64
}

// Server is Amazon SQS. It is an http.Handler, and its methods may be called concurrently. Two servers share nothing.
type Server struct {
	o    Options
	json awsjson.Service

	mu     sync.Mutex
	queues map[string]*queue
	// deleted is when a queue of that name was deleted.
	deleted map[string]time.Time
	tasks   []*moveTask
	calls   map[string]int
	// order numbers messages as they arrive, over all queues.
	order int64
	// chance is nil without disorder.
	chance *rand.Rand
	// stopped: long polls end at once.
	stopped bool

	keeper keeper
	dirt   *dirt // nil when nothing is kept
}

// New makes a server without queues.
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
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 120_000
	}
	s := &Server{o: o, queues: map[string]*queue{}, deleted: map[string]time.Time{}, calls: map[string]int{}}
	if o.Disorder != 0 {
		s.chance = rand.New(rand.NewPCG(o.Disorder, 1))
	}
	s.json = awsjson.Service{
		Target: "AmazonSQS", ContentType: "application/x-amz-json-1.0", Operations: s.operations(),
		MaxBody: 16 << 20, // a batch of a mebibyte, in base64 and with escapes, fits several times
	}
	return s
}

func (s *Server) operations() map[string]awsjson.Operation {
	return map[string]awsjson.Operation{
		"CreateQueue":                  awsjson.Op(s.createQueue),
		"DeleteQueue":                  awsjson.Op(s.deleteQueue),
		"GetQueueUrl":                  awsjson.Op(s.getQueueURL),
		"ListQueues":                   awsjson.Op(s.listQueues),
		"GetQueueAttributes":           awsjson.Op(s.getQueueAttributes),
		"SetQueueAttributes":           awsjson.Op(s.setQueueAttributes),
		"PurgeQueue":                   awsjson.Op(s.purgeQueue),
		"SendMessage":                  awsjson.Op(s.sendMessage),
		"SendMessageBatch":             awsjson.Op(s.sendMessageBatch),
		"ReceiveMessage":               awsjson.Op(s.receiveMessage),
		"DeleteMessage":                awsjson.Op(s.deleteMessage),
		"DeleteMessageBatch":           awsjson.Op(s.deleteMessageBatch),
		"ChangeMessageVisibility":      awsjson.Op(s.changeMessageVisibility),
		"ChangeMessageVisibilityBatch": awsjson.Op(s.changeMessageVisibilityBatch),
		"ListDeadLetterSourceQueues":   awsjson.Op(s.listDeadLetterSourceQueues),
		"StartMessageMoveTask":         awsjson.Op(s.startMessageMoveTask),
		"ListMessageMoveTasks":         awsjson.Op(s.listMessageMoveTasks),
		"CancelMessageMoveTask":        awsjson.Op(s.cancelMessageMoveTask),
		"ListQueueTags":                awsjson.Op(s.listQueueTags),
		"TagQueue":                     awsjson.Op(s.tagQueue),
		"UntagQueue":                   awsjson.Op(s.untagQueue),
		"AddPermission":                awsjson.Op(s.permission),
		"RemovePermission":             awsjson.Op(s.permission),
	}
}

// permission allows every operation to everybody.
func (s *Server) permission(context.Context, struct{}) (struct{}, error) {
	return struct{}{}, unsupported("This server has no access control: permissions cannot be added or removed.")
}

// ServeHTTP serves the AWS JSON protocol.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := awsjson.Name(r)
	s.mu.Lock()
	s.calls[name]++
	s.mu.Unlock()
	base := s.o.BaseURL
	if base == "" {
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		base = scheme + "://" + r.Host
	}
	s.json.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), baseKey{}, base)))
}

// baseKey is the context's key of what queue URLs begin with.
type baseKey struct{}

func (s *Server) url(ctx context.Context, q *queue) string {
	base, _ := ctx.Value(baseKey{}).(string)
	if base == "" {
		base = s.o.BaseURL
	}
	return base + "/" + s.o.Account + "/" + q.name
}

func (s *Server) arn(name string) string {
	return fmt.Sprintf("arn:aws:sqs:%s:%s:%s", s.o.Region, s.o.Account, name)
}

// Calls returns the number of calls of an operation ("ReceiveMessage"), refused calls included.
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
