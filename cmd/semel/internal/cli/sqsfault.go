package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/sqslocal"
)

type sqsFaultOptions struct {
	endpoint string
	seed     uint64
	seeded   bool
	clear    bool
}

func (a *app) sqsFaultCommand() *cobra.Command {
	var o sqsFaultOptions
	c := &cobra.Command{
		Use: "fault [NAME=RATE|next:N|off …] [--endpoint URL]", Short: "Set or show the faults of a running semel sqs",
		Long: `fault sets the named faults and leaves the others. Without a name it shows what is set, how many chances each fault had, and
how many it took. NAME@DeleteMessage=… limits a fault to one operation (+ joins several); by=2s is the time of delay, early-visible
and late-visible. semel sqs --help describes each fault. PUT, GET and DELETE of /_semel/faults do the same.`,
		Example: `  semel sqs fault duplicate=0.5 lost-response=next:3
  semel sqs fault delay@ReceiveMessage+SendMessage=0.1,by=2s --endpoint http://127.0.0.1:9324
  semel sqs fault --clear`,
		ValidArgsFunction: oneOf(func() []string {
			names := sqslocal.Names()
			for i := range names {
				names[i] += "="
			}
			return names
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.seeded = cmd.Flags().Changed("seed")
			return a.sqsFault(cmd.Context(), o, args)
		},
	}
	at := os.Getenv("AWS_ENDPOINT_URL_SQS")
	if at == "" {
		at = "http://127.0.0.1:9324"
	}
	f := c.Flags()
	f.StringVar(&o.endpoint, "endpoint", at, "where semel sqs listens (default: AWS_ENDPOINT_URL_SQS, else http://127.0.0.1:9324)")
	f.Uint64Var(&o.seed, "seed", 0, "new seed of the faults; resets the chances")
	f.BoolVar(&o.clear, "clear", false, "remove all faults first")
	return c
}

func (a *app) sqsFault(ctx context.Context, o sqsFaultOptions, args []string) error {
	u, err := url.Parse(o.endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return output.Usage("--endpoint %q is no URL of a server", open.Redact(o.endpoint)).WithHint("--endpoint http://127.0.0.1:9324")
	}
	target := u.Scheme + "://" + u.Host + sqslocal.FaultsPath
	faults, err := sqslocal.ParseFaults(args)
	if err != nil {
		return err
	}
	change := sqslocal.Change{Faults: faults}
	if o.seeded {
		change.Seed = &o.seed
	}
	var state sqslocal.State
	if o.clear {
		if err := ask(ctx, http.MethodDelete, target, nil, &state); err != nil {
			return err
		}
	}
	switch {
	case len(args) > 0 || o.seeded:
		state = sqslocal.State{} // decoding adds to maps that are there
		err = ask(ctx, http.MethodPut, target, change, &state)
	case !o.clear:
		err = ask(ctx, http.MethodGet, target, nil, &state)
	}
	if err != nil {
		return err
	}
	return a.p.Object(state, func(w io.Writer) error { return tellFaults(w, state) })
}

// tellFaults prints faults as they are given on the command line, and their counts.
func tellFaults(w io.Writer, s sqslocal.State) error {
	names := slices.Collect(maps.Keys(s.Faults))
	for name := range s.Counts {
		if _, ok := s.Faults[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		_, err := fmt.Fprintf(w, "no faults (seed %d)\n", s.Seed)
		return err
	}
	for _, name := range names {
		c := s.Counts[name]
		if _, err := fmt.Fprintf(w, "%-40s hit %d of %d\n", sqslocal.Text(name, s.Faults[name]), c.Hits, c.Chances); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "seed %d\n", s.Seed)
	return err
}

// ask speaks to a semel sqs. What it refuses is a usage error with its hint.
func ask(ctx context.Context, method, target string, send, into any) error {
	var body io.Reader
	if send != nil {
		b, err := json.Marshal(send)
		if err != nil {
			return fmt.Errorf("write the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return output.Usage("--endpoint: %w", err)
	}
	c := http.Client{Timeout: 10 * time.Second}
	got, err := c.Do(r)
	if err != nil {
		return output.Unreachable("%w", err).WithHint("is semel sqs running there? --endpoint http://127.0.0.1:9324")
	}
	defer func() { _ = got.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(got.Body, 1<<20))
	if err != nil {
		return output.Unreachable("read the response of %s: %w", target, err)
	}
	var refused struct {
		Error struct{ Message, Hint string }
	}
	switch {
	case got.StatusCode == http.StatusOK && json.Unmarshal(b, into) == nil:
		return nil
	case got.StatusCode == http.StatusBadRequest && json.Unmarshal(b, &refused) == nil && refused.Error.Message != "":
		e := output.Usage("%s", refused.Error.Message)
		e.Hint = refused.Error.Hint
		return e
	}
	return output.Unreachable("%s responds %s: it is no semel sqs", strings.TrimSuffix(target, sqslocal.FaultsPath), got.Status).
		WithHint("--endpoint http://127.0.0.1:9324, where semel sqs listens")
}
