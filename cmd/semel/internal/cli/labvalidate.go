package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/lab"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/preflight"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/internal/words"
)

func (a *app) labValidateCommand() *cobra.Command {
	var o preflight.Options
	c := &cobra.Command{
		Use: "validate", Short: "Check that scenarios can run here", Args: noArgs,
		Long: `validate tries what scenarios need: a folder that can be written, ports of the loopback interface, the queue and the
store, this program as a worker process, and the signals that kill and freeze it. It prints a line for each, and takes away
what it made. Exit status 0 when all is there, 3 when something is not. semel doctor examines the settings of a worker.`,
		Example: `  semel lab validate
  semel lab validate --on aws
  semel lab validate --queue 'sqs://semel-lab?region=eu-west-1' \
    --store 'dynamodb://semel-lab?region=eu-west-1'`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.labValidate(cmd.Context(), o) },
	}
	f := c.Flags()
	whereFlags(f, &o.Where)
	return c
}

func (a *app) labValidate(ctx context.Context, o preflight.Options) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the own program: %w", err)
	}
	o.Command = []string{exe, lab.HiddenCommand}
	progress, done := a.progress()
	o.Progress = progress
	lines, err := preflight.Run(ctx, o)
	done()
	if err != nil {
		return err
	}
	if a.p.Format != output.Text {
		err = output.List(a.p, lines, nil, nil)
	} else {
		_, err = io.WriteString(a.p.Out, validated(lines))
	}
	if err == nil && slices.ContainsFunc(lines, func(l preflight.Line) bool { return !l.OK }) {
		return &output.Error{Code: output.CodeNegative, Err: errors.New("scenarios cannot run here"), Silent: true}
	}
	return err
}

// validated is the lines for a person.
func validated(lines []preflight.Line) string {
	var s strings.Builder
	for _, l := range lines {
		mark := "✓"
		if !l.OK {
			mark = "✗"
		}
		fmt.Fprintf(&s, "%s %-9s %s\n", mark, l.Name, words.Printable(l.Detail, 0))
		if l.Hint != "" {
			fmt.Fprintf(&s, "  try: %s\n", l.Hint)
		}
	}
	return s.String()
}
