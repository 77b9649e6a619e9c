package worker

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/semel-dev/semel"
)

// withoutFiles runs f while no file can be opened, and with that no process started.
func withoutFiles(t *testing.T, f func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// A probe that could not be started has said nothing. Taken for exit 75 it would say that the effect did not happen.
func TestProbeThatCannotStartKnowsNothing(t *testing.T) {
	e := program("exit 0")
	withoutFiles(t, func() {
		if got, err := e.Ask(t.Context(), &semel.Attempt{}); got != semel.ProbeUnknown || err == nil {
			t.Errorf("got %v, error %v", got, err)
		}
	})
	if got, err := e.Ask(t.Context(), &semel.Attempt{}); got != semel.ProbeApplied || err != nil {
		t.Errorf("afterwards: got %v, error %v", got, err)
	}
}

// A system without room for another process spends nobody's attempts: it would dead-letter a whole queue in seconds.
func TestNoRoomForAHandlerSpendsNoAttempt(t *testing.T) {
	e, calls := program("exit 0"), 0
	h := Plain(e, quiet())
	s, _ := run(t, semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) (err error) {
		if calls++; calls > 1 {
			return h.Handle(ctx, a)
		}
		withoutFiles(t, func() { err = h.Handle(ctx, a) })
		if !errors.Is(err, errNoRoom) || !errors.Is(err, syscall.EMFILE) {
			t.Errorf("error %v", err)
		}
		return err
	}), func(c *semel.Config) { c.MaxAttempts = 1 }, semel.Message{})
	if s.Dead != 0 || s.Effects != 1 || calls != 2 {
		t.Errorf("%d calls, %+v", calls, s)
	}
}
