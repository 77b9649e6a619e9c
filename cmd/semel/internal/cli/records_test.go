package cli

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

// endless is a store whose records take forever to read.
type endless struct{ driver.RecordInspector }

func (endless) Records(ctx context.Context, _ driver.RecordFilter) ([]driver.Record, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestRecordsAreNotReadForever: a list whose order nobody asked for ends after listTime, and says how to get one.
func TestRecordsAreNotReadForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{insp: endless{}}
		_, _, err := recordList{limit: 100, order: orderNewest}.of(t.Context(), l, driver.RecordFilter{})
		if e := output.As(err); err == nil || !strings.Contains(e.Hint, "--order any") {
			t.Errorf("%v, hint %q", err, output.As(err).Hint)
		}
		for _, asked := range []recordList{{limit: 100, order: orderNewest, asked: true}, {limit: 0, order: orderNewest}} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*listTime)
			if _, _, err := asked.of(ctx, l, driver.RecordFilter{}); ctx.Err() == nil {
				t.Errorf("%+v ended by itself: %v", asked, err)
			}
			cancel()
		}
	})
}

// TestTheFirstExampleOfSQSIsThatOfItsPage: the script sqs.txtar runs the help's, and holds doctor against it.
func TestTheFirstExampleOfSQSIsThatOfItsPage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/sqs-local.md")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(strings.TrimSpace((&app{}).sqsCommand().Example), "\n")
	if !strings.Contains(string(page), "$ "+first+"\n") {
		t.Errorf("docs/sqs-local.md does not begin with %q", first)
	}
}

// TestReasonsShowNoTrace: records and dead letters keep the trace of their run behind the reason; lists show the reason alone.
func TestReasonsShowNoTrace(t *testing.T) {
	stored := driver.AppendTrace("card declined", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	if stored == "card declined" {
		t.Fatal("the trace is not stored")
	}
	if r := recordOf(driver.Record{State: driver.FailedState, Reason: stored}); r.Reason != "card declined" {
		t.Errorf("record: %q", r.Reason)
	}
	if l := deadLetterOf(driver.DeadLetter{Reason: stored}); l.Reason != "card declined" {
		t.Errorf("dead letter: %q", l.Reason)
	}
}
