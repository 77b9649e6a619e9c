package fakesqs

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest/internal/awsjson"
)

// minute is how long a queue's name is taken after a delete, and how far purges have to be apart.
const minute = time.Minute

var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

type createIn struct {
	QueueName  string
	Attributes settings
	Tags       map[string]string `json:"tags"`
}

type urlOut struct {
	QueueURL string `json:"QueueUrl"`
}

func (s *Server) createQueue(ctx context.Context, in createIn) (urlOut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.create(in)
	if err != nil {
		return urlOut{}, err
	}
	return urlOut{s.url(ctx, q)}, nil
}

// create makes a queue, or finds the one that is the same. The lock is held.
func (s *Server) create(in createIn) (*queue, error) {
	in.Attributes = in.Attributes.lower()
	name, fifo := strings.CutSuffix(in.QueueName, ".fifo")
	if in.QueueName == "" {
		return nil, missing("QueueName")
	}
	if !queueName.MatchString(name) || len(in.QueueName) > 80 {
		return nil, invalidValue("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	if fifo != (in.Attributes["FifoQueue"] == "true") && (fifo || in.Attributes["FifoQueue"] != "") {
		if fifo {
			return nil, invalidValue("The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, " +
				"must end with .fifo suffix and be 1 to 80 in length, and needs the attribute FifoQueue.")
		}
		return nil, invalidValue("The name of a FIFO queue must end with .fifo suffix.")
	}
	if err := in.Attributes.check(fifo); err != nil {
		return nil, err
	}
	if q := s.queues[in.QueueName]; q != nil {
		return q, q.same(in.Attributes)
	}
	if err := s.checkTarget(in.Attributes, s.arn(in.QueueName), fifo); err != nil {
		return nil, err
	}
	now := s.o.Clock.Now()
	if at, ok := s.deleted[in.QueueName]; ok && now.Sub(at) < minute {
		return nil, modelled("QueueDeletedRecently", legacy+"QueueDeletedRecently",
			"You must wait 60 seconds after deleting a queue before you can create another with the same name.")
	}
	delete(s.deleted, in.QueueName)
	s.dirt.mark(kindDeleted, "", in.QueueName)
	q := newQueue(in.QueueName, s.arn(in.QueueName), fifo, now)
	q.dirt = s.dirt
	q.merge(in.Attributes)
	maps.Copy(q.tags, in.Tags)
	q.mark()
	s.queues[q.name] = q
	return q, nil
}

// same reports whether a queue has the requested attributes. Attributes that were not named do not count.
func (q *queue) same(want settings) error {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if q.get1(name) != want[name] {
			return modelled("QueueNameExists", "QueueAlreadyExists",
				"A queue already exists with the same name and a different value for attribute %s", name)
		}
	}
	return nil
}

// merge sets attributes; an empty one goes back to its default.
func (q *queue) merge(set settings) {
	for name, v := range set.lower() {
		if v == "" {
			delete(q.set, name)
			continue
		}
		q.set[name] = v
	}
}

// get1 is one attribute that can be set, "" when it has neither value nor default.
func (q *queue) get1(name string) string {
	if v, ok := q.set[name]; ok {
		return v
	}
	if n, ok := numbers[name]; ok && name != "KmsDataKeyReusePeriodSeconds" {
		return strconv.Itoa(n.def)
	}
	switch {
	case name == "SqsManagedSseEnabled":
		return "true"
	case !q.fifo:
		return ""
	case name == "FifoQueue":
		return "true"
	case name == "ContentBasedDeduplication":
		return "false"
	case name == "DeduplicationScope":
		return "queue"
	case name == "FifoThroughputLimit":
		return "perQueue"
	}
	return ""
}

type queueIn struct {
	QueueURL string `json:"QueueUrl"`
}

func (s *Server) deleteQueue(_ context.Context, in queueIn) (struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return struct{}{}, err
	}
	q.markAll()
	delete(s.queues, q.name)
	s.deleted[q.name] = s.o.Clock.Now()
	s.dirt.mark(kindDeleted, "", q.name)
	q.gone = true
	q.wake()
	return struct{}{}, nil
}

type nameIn struct {
	QueueName              string
	QueueOwnerAWSAccountID string `json:"QueueOwnerAWSAccountId"`
}

func (s *Server) getQueueURL(ctx context.Context, in nameIn) (urlOut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[in.QueueName]
	if q == nil || in.QueueOwnerAWSAccountID != "" && in.QueueOwnerAWSAccountID != s.o.Account {
		return urlOut{}, noQueue()
	}
	return urlOut{s.url(ctx, q)}, nil
}

type listIn struct {
	QueueURL        string `json:"QueueUrl"`
	QueueNamePrefix string
	MaxResults      *int
	NextToken       string
}

type listOut struct {
	QueueURLs []string `json:"QueueUrls,omitempty"`
	NextToken string   `json:",omitempty"`
}

func (s *Server) listQueues(ctx context.Context, in listIn) (listOut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, token, err := page(in, slices.Sorted(maps.Keys(s.queues)))
	out := listOut{NextToken: token}
	for _, n := range names {
		out.QueueURLs = append(out.QueueURLs, s.url(ctx, s.queues[n]))
	}
	return out, err
}

// page is the part of sorted names that was asked for, and the token of the next.
func page(in listIn, sorted []string) (names []string, token string, err error) {
	most := 1000
	if in.MaxResults != nil {
		if most = *in.MaxResults; most < 1 || most > 1000 {
			return nil, "", invalid("MaxResults", most, "Must be between 1 and 1000, if provided.")
		}
	}
	after, err := base64.StdEncoding.DecodeString(in.NextToken)
	if err != nil {
		return nil, "", invalid("NextToken", in.NextToken, "The token is not one of this service.")
	}
	for _, n := range sorted {
		if !strings.HasPrefix(n, in.QueueNamePrefix) || n <= string(after) {
			continue
		}
		if len(names) == most {
			// Without MaxResults there is one page of a thousand and no token.
			if in.MaxResults != nil {
				token = base64.StdEncoding.EncodeToString([]byte(names[most-1]))
			}
			break
		}
		names = append(names, n)
	}
	return names, token, nil
}

func (s *Server) purgeQueue(_ context.Context, in queueIn) (struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return struct{}{}, err
	}
	now := s.o.Clock.Now()
	if !q.purged.IsZero() && now.Sub(q.purged) < minute {
		return struct{}{}, &awsjson.Error{
			Status: http.StatusForbidden, Type: "com.amazonaws.sqs#PurgeQueueInProgress",
			Message: fmt.Sprintf("Only one PurgeQueue operation on %s is allowed every 60 seconds.", q.name),
			Query:   legacy + "PurgeQueueInProgress;Sender",
		}
	}
	q.purged = now
	q.mark()
	q.each(func(m *message) bool {
		q.remove(m)
		return true
	})
	return struct{}{}, nil
}
