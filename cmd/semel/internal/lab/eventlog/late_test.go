package eventlog

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// TestLate: a delay counts, one of a process that the run froze does not.
func TestLate(t *testing.T) {
	entries := []Entry{
		{Kind: Delay, Worker: 1, Life: 1, AfterMS: 40},
		{Kind: Delay, Worker: 1, Life: 2, AfterMS: 120},
		{Kind: "extended", Worker: 1, Life: 2, AfterMS: 5000},
		{Kind: Struck, Worker: 2, Life: 1, Action: string(plan.Freeze)},
		{Kind: Delay, Worker: 2, Life: 1, AfterMS: 2500},
		{Kind: Strike, Worker: 3, Life: 1, Action: string(plan.Kill)},
		{Kind: Delay, Worker: 3, Life: 1, AfterMS: 90},
	}
	if got := Late(entries); got != 120*time.Millisecond {
		t.Errorf("late by %v", got)
	}
	if got := Late(entries[3:5]); got != 0 {
		t.Errorf("a frozen process is late by %v", got)
	}
}
