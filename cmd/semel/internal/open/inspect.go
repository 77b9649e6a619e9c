package open

import (
	"context"
	"fmt"

	"github.com/semel-dev/semel/ops"
)

func fact(level, check, try, detail string, args ...any) ops.Check {
	return ops.Check{Check: check, Level: level, Detail: fmt.Sprintf(detail, args...), Try: try}
}

// Facts are what doctor found.
type Facts []ops.Check

// Add adds a fact.
func (f *Facts) Add(level, check, try, detail string, args ...any) {
	*f = append(*f, fact(level, check, try, detail, args...))
}

// When adds a fact if it applies.
func (f *Facts) When(applies bool, level, check, try, detail string, args ...any) {
	if applies {
		f.Add(level, check, try, detail, args...)
	}
}

// Worst is the highest level of all.
func (f Facts) Worst() string {
	out := ops.LevelOK
	for _, x := range f {
		if x.Level == ops.LevelDanger {
			return ops.LevelDanger
		}
		if x.Level == ops.LevelWarning {
			out = ops.LevelWarning
		}
	}
	return out
}

// Examiner is an optional interface of databases that know more than the features of their adapters say.
type Examiner interface {
	// Examine looks at the server on behalf of a worker that would be opened with these options. An error means that it
	// could not look.
	Examine(ctx context.Context, o Options) ([]ops.Check, error)
}

// Examine looks at the place that a URL names, where its kind knows how to.
func (s *Set) Examine(ctx context.Context, flag, raw string) ([]ops.Check, error) {
	_, db, err := s.at(ctx, flag, raw)
	if err != nil {
		return nil, err
	}
	if x, ok := db.(Examiner); ok {
		return x.Examine(ctx, s.o)
	}
	return nil, nil
}

// SamePlace reports that two URLs name one database, so that queue and store join.
func SamePlace(a, b string) bool {
	x, err := Parse("queue", a)
	if err != nil {
		return false
	}
	y, err := Parse("store", b)
	return err == nil && x.place == y.place
}

// Adviser is an optional interface of databases whose queues have settings on the server.
type Adviser interface {
	// Live is how the queue is set now.
	Live(ctx context.Context, queue string) (*ops.LiveQueue, error)
}

// Live is how the queue that a URL names is set on its server; nil for kinds that keep no such settings.
func (s *Set) Live(ctx context.Context, flag, raw string) (*ops.LiveQueue, error) {
	t, db, err := s.at(ctx, flag, raw)
	if err != nil {
		return nil, err
	}
	if x, ok := db.(Adviser); ok {
		return x.Live(ctx, t.QueueName())
	}
	return nil, nil //nolint:nilnil // most kinds have none
}
