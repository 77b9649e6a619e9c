package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

// step is the printed form of a step of a run (mode E).
type step struct {
	Name         string  `json:"name"`
	State        string  `json:"state"`
	Undo         bool    `json:"undo"`
	Token        uint64  `json:"token"`
	Failures     int     `json:"failures,omitempty"`
	Reason       string  `json:"reason,omitempty"`
	Result       *string `json:"result,omitempty"`
	ResultBase64 string  `json:"result_base64,omitempty"`
	UpdatedAt    string  `json:"updated_at,omitempty"`
}

// journal reads the steps of a record's run. The run that a compensation ended is that of the epoch before: its journal is
// shown until the key runs again.
func (l *ledger) journal(ctx context.Context, r driver.Record) ([]driver.Step, error) {
	st, ok := driver.As[driver.StepStore](l.store)
	if !ok {
		return nil, nil
	}
	h := r.Hold()
	rows, err := st.Steps(ctx, h)
	if err != nil || len(rows) > 0 || h.Epoch == 0 || r.State != driver.FailedState {
		return rows, err
	}
	h.Epoch--
	return st.Steps(ctx, h)
}

func stepsOf(rows []driver.Step) []step {
	var all []step
	for _, s := range rows {
		x := step{
			Name: s.Name, State: s.State.String(), Undo: s.Undo, Token: s.Token, Failures: s.Failures, Reason: s.Reason,
			UpdatedAt: rfc3339(s.UpdatedAt),
		}
		if len(s.Result) > 0 {
			x.Result, x.ResultBase64 = textOr64(s.Result)
		}
		all = append(all, x)
	}
	return all
}

// textSteps prints a line for each step; that of the run itself has no name.
func textSteps(w io.Writer, steps []step) error {
	for _, s := range steps {
		name, rest := s.Name, ""
		if name == "" {
			name = "(the run)"
		}
		if s.Failures > 0 {
			rest += fmt.Sprintf(" failed %d times:", s.Failures)
		}
		if s.Reason != "" {
			rest += " " + s.Reason
		}
		if s.Result != nil {
			rest += " " + *s.Result
		}
		if _, err := fmt.Fprintf(w, "%-12s %-12s %s%s\n", "step", s.State, output.Printable(name, 200), output.Printable(rest, 500)); err != nil {
			return err
		}
	}
	return nil
}
