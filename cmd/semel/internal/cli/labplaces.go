package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// notRun are the scenarios that the chosen place does not support.
type notRun []*place.UnsupportedError

// take keeps the error of a scenario that did not run, and returns true. It returns other errors. If several scenarios were
// chosen it prints a line.
func (u *notRun) take(a *app, err error, several bool) (bool, error) {
	unsupported := (*place.UnsupportedError)(nil)
	if !errors.As(err, &unsupported) {
		return false, err
	}
	*u = append(*u, unsupported)
	if a.p.Format != output.Text || !several {
		return true, nil
	}
	_, err = fmt.Fprintf(a.p.Out, "– %-16s not run: %s\n", unsupported.Scenario, unsupported.Why)
	return true, err
}

// reasons are the lines of the verdict.
func (u notRun) reasons() (out []string) {
	for _, c := range u {
		out = append(out, c.Scenario+": "+c.Why)
	}
	return out
}

// count is the part of the last line about scenarios that did not run.
func (u notRun) count() string {
	if len(u) == 0 {
		return ""
	}
	return fmt.Sprintf("%d not run, ", len(u))
}

// labScenarios runs scenarios, one after the other, and prints each of several as soon as it has ended.
func (a *app) labScenarios(ctx context.Context, o labRun, chosen []plan.Scenario) (all []verdict.Verdict, not notRun, err error) {
	for i, s := range chosen {
		one := o.Options
		if len(chosen) > 1 {
			one.Report = "" // one file for all of them, at the end
		}
		v, err := a.labOne(ctx, s, one, o.watch, i, len(chosen))
		if skipped, err := not.take(a, err, len(chosen) > 1); err != nil {
			return nil, nil, err
		} else if skipped {
			continue
		}
		all = append(all, v)
		if len(chosen) > 1 {
			if err := a.labLine(v); err != nil {
				return nil, nil, err
			}
		}
	}
	return all, not, nil
}

// alone prints that no scenario ran.
func (u notRun) alone(a *app) error {
	if a.p.Format == output.JSONL {
		return nil
	}
	v := verdict.Verdict{Runs: []verdict.Run{}, Verdict: verdict.NotRun, NotRun: u.reasons()}
	return a.p.Object(v, func(*strings.Builder) {}) // its line is there, or the error is
}

// asked returns an error if a scenario was named on the command line and did not run.
func (u notRun) asked(all bool) error {
	if len(u) == 0 || all {
		return nil
	}
	return &output.Error{Code: output.CodeNegative, Err: u[0], Hint: "another place runs it: --on embedded, or --store postgres://…"}
}
