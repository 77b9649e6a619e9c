package fakesqs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest/internal/awsjson"
)

// moveTask moves messages out of a dead-letter queue. It has no goroutine: due messages are moved at the next access.
type moveTask struct {
	id           string
	source, dest string // ARNs; dest "" = back to where each message came from
	perSecond    int    // 0 = all at once
	started      time.Time
	status       string
	reason       string
	toMove       int
	moved        int
}

const (
	running   = "RUNNING"
	completed = "COMPLETED"
	cancelled = "CANCELLED"
	broken    = "FAILED"
)

func notFound(message string) error {
	return &awsjson.Error{
		Status: http.StatusNotFound, Type: "com.amazonaws.sqs#ResourceNotFoundException", Message: message,
		Query: "ResourceNotFoundException;Sender",
	}
}

type startIn struct {
	SourceArn, DestinationArn    string
	MaxNumberOfMessagesPerSecond *int
}

type taskHandle struct {
	TaskHandle string
}

// startMessageMoveTask starts a move.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_StartMessageMoveTask.html
func (s *Server) startMessageMoveTask(_ context.Context, in startIn) (taskHandle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Clock.Now()
	s.runTasks(now)
	source, err := s.moveSource(in.SourceArn)
	if err != nil {
		return taskHandle{}, err
	}
	if len(s.sources(source)) == 0 {
		return taskHandle{}, invalidValue("Source queue must be configured as a Dead Letter Queue.")
	}
	if in.DestinationArn != "" && s.byARN(in.DestinationArn) == nil {
		return taskHandle{}, notFound("The resource that you specified for the DestinationArn parameter doesn't exist.")
	}
	rate, err := between("MaxNumberOfMessagesPerSecond", in.MaxNumberOfMessagesPerSecond, 0, 1, 500, "Must be between 1 and 500.")
	if err != nil {
		return taskHandle{}, err
	}
	for _, t := range s.tasks {
		if t.source == in.SourceArn && t.status == running {
			return taskHandle{}, invalidValue("There is already a task running. Only one active task is allowed for a source queue " +
				"arn at a given time.")
		}
	}
	visible, _, _ := source.count(now)
	t := &moveTask{
		id: newID(), source: in.SourceArn, dest: in.DestinationArn, perSecond: rate, started: now, status: running, toMove: visible,
	}
	s.tasks = append(s.tasks, t)
	s.dirt.mark(kindTask, "", t.id)
	s.runTasks(now)
	return taskHandle{t.handle()}, nil
}

func (s *Server) moveSource(arn string) (*queue, error) {
	if arn == "" {
		return nil, missing("SourceArn")
	}
	q := s.byARN(arn)
	if q == nil {
		return nil, notFound("The resource that you specified for the SourceArn parameter doesn't exist.")
	}
	q.expire(s.o.Clock.Now())
	return q, nil
}

func (t *moveTask) handle() string {
	b, _ := json.Marshal(map[string]string{"taskId": t.id, "sourceArn": t.source}) // two strings
	return base64.StdEncoding.EncodeToString(b)
}

// runTasks moves due messages.
func (s *Server) runTasks(now time.Time) {
	for _, t := range s.tasks {
		if t.status != running {
			continue
		}
		before := *t
		if s.run(t, now); *t != before {
			s.dirt.mark(kindTask, "", t.id)
		}
	}
}

// nextMove is when a task that runs moves its next messages, zero when none does.
func (s *Server) nextMove(now time.Time) time.Time {
	for _, t := range s.tasks {
		if t.status == running {
			return now.Add(time.Second - now.Sub(t.started)%time.Second)
		}
	}
	return time.Time{}
}

func (s *Server) run(t *moveTask, now time.Time) {
	source := s.byARN(t.source)
	if source == nil {
		t.status, t.reason = broken, legacy+"NonExistentQueue"
		return
	}
	due := t.toMove
	if t.perSecond > 0 {
		due = min(due, int(now.Sub(t.started)/time.Second)*t.perSecond)
	}
	source.each(func(m *message) bool {
		if t.moved >= due || t.status != running {
			return false
		}
		if !m.hidden(now) {
			s.move(t, source, m, now)
		}
		return true
	})
	// Messages that were deleted in the meantime are not moved, but the task still ends on time.
	over := t.moved >= t.toMove || t.perSecond == 0 || now.Sub(t.started) > time.Duration(t.toMove/t.perSecond+1)*time.Second
	if t.status == running && over {
		t.status = completed
	}
}

// move makes a new message of one: other id, no receives, new times; body, attributes and group stay.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html
func (s *Server) move(t *moveTask, source *queue, m *message, now time.Time) {
	arn := t.dest
	if arn == "" {
		arn = m.source
	}
	to := s.byARN(arn)
	if to == nil || to.fifo != source.fifo {
		t.status, t.reason = broken, legacy+"NonExistentQueue"
		return
	}
	source.remove(m)
	fresh := &message{
		id: newID(), body: m.body, attributes: m.attributes, trace: m.trace, group: m.group, dedupID: m.dedupID, sender: m.sender,
		sentAt: now, retained: now, visibleAt: now,
	}
	if to.fifo {
		to.number(fresh)
	}
	s.add(to, fresh)
	t.moved++
}

type tasksIn struct {
	SourceArn  string
	MaxResults *int
}

type taskOut struct {
	TaskHandle                        string `json:",omitempty"`
	Status                            string
	SourceArn                         string
	DestinationArn                    string `json:",omitempty"`
	MaxNumberOfMessagesPerSecond      int    `json:",omitempty"`
	ApproximateNumberOfMessagesMoved  int
	ApproximateNumberOfMessagesToMove int
	FailureReason                     string `json:",omitempty"`
	StartedTimestamp                  int64
}

type tasksOut struct {
	Results []taskOut
}

func (s *Server) listMessageMoveTasks(_ context.Context, in tasksIn) (tasksOut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runTasks(s.o.Clock.Now())
	if _, err := s.moveSource(in.SourceArn); err != nil {
		return tasksOut{}, err
	}
	most, err := between("MaxResults", in.MaxResults, 1, 1, 10, "Must be between 1 and 10, if provided.")
	out := tasksOut{Results: []taskOut{}}
	for _, t := range slices.Backward(s.tasks) {
		if t.source != in.SourceArn || len(out.Results) >= most {
			continue
		}
		o := taskOut{
			Status: t.status, SourceArn: t.source, DestinationArn: t.dest, MaxNumberOfMessagesPerSecond: t.perSecond,
			ApproximateNumberOfMessagesMoved: t.moved, ApproximateNumberOfMessagesToMove: t.toMove,
			FailureReason: t.reason, StartedTimestamp: t.started.UnixMilli(),
		}
		if t.status == running {
			o.TaskHandle = t.handle() // only a running task has one
		}
		out.Results = append(out.Results, o)
	}
	return out, err
}

type cancelOut struct {
	ApproximateNumberOfMessagesMoved int
}

func (s *Server) cancelMessageMoveTask(_ context.Context, in taskHandle) (cancelOut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runTasks(s.o.Clock.Now())
	var h struct{ TaskID, SourceArn string }
	b, err := base64.StdEncoding.DecodeString(in.TaskHandle)
	if err != nil || json.Unmarshal(b, &h) != nil || h.SourceArn == "" {
		return cancelOut{}, invalidValue("Value for parameter TaskHandle is invalid.")
	}
	if _, err := s.moveSource(h.SourceArn); err != nil {
		return cancelOut{}, err
	}
	for _, t := range s.tasks {
		if t.id == h.TaskID && t.status == running {
			t.status = cancelled
			s.dirt.mark(kindTask, "", t.id)
			return cancelOut{t.moved}, nil
		}
	}
	return cancelOut{}, notFound("Task does not exist.")
}
