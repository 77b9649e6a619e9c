package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// unplayed are the scenarios that could not be played where they were to be.
type unplayed []*place.UnsupportedError

// take keeps the error of a scenario that could not be played, and answers true; other errors are not for it. Of several it
// prints a line.
func (u *unplayed) take(a *app, err error, several bool) (bool, error) {
	cannot := (*place.UnsupportedError)(nil)
	if !errors.As(err, &cannot) {
		return false, err
	}
	*u = append(*u, cannot)
	if a.p.Format != output.Text || !several {
		return true, nil
	}
	_, err = fmt.Fprintf(a.p.Out, "– %-16s not played: %s\n", cannot.Scenario, cannot.Why)
	return true, err
}

// reasons are the lines of the verdict.
func (u unplayed) reasons() (out []string) {
	for _, c := range u {
		out = append(out, c.Scenario+": "+c.Why)
	}
	return out
}

// count is the part of the last line that says how many were not played.
func (u unplayed) count() string {
	if len(u) == 0 {
		return ""
	}
	return fmt.Sprintf("%d not played, ", len(u))
}

// labPlay plays scenarios, one after the other, and prints each of several as soon as it is over.
func (a *app) labPlay(ctx context.Context, o labRun, chosen []plan.Scenario) (all []verdict.Verdict, not unplayed, err error) {
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

// alone prints that nothing at all was played.
func (u unplayed) alone(a *app) error {
	if a.p.Format == output.JSONL {
		return nil
	}
	v := verdict.Verdict{Runs: []verdict.Run{}, Verdict: verdict.NotRun, NotRun: u.reasons()}
	return a.p.Object(v, func(io.Writer) error { return nil }) // its line is there, or the error is
}

// asked is the end of a run in which somebody named a scenario that was not played: that is not what he wanted.
func (u unplayed) asked(all bool) error {
	if len(u) == 0 || all {
		return nil
	}
	return &output.Error{Code: output.CodeNegative, Err: u[0], Hint: "another place plays it: --on embedded, or --store postgres://…"}
}
