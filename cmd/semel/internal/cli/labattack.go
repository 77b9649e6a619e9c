package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/attack"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/worker"
)

// attackFlags are those of semel lab attack.
type attackFlags struct {
	exec, pipe, http, body string
	effects, query         string
	headers, env, only     []string
	key, listen            string
	keyHeader              string
	seed                   uint64
	timeout, lease         config.Duration
	takeover, probe, ask   string
	retry                  []string
	list                   bool
}

func (a *app) labAttackCommand() *cobra.Command {
	f := attackFlags{timeout: config.Duration(10 * time.Second), lease: config.Duration(2 * time.Second)}
	c := &cobra.Command{
		Use:   "attack (--exec CMD | --pipe CMD | --http URL | -- PROG ARG…)",
		Short: "Attack your own handler, and learn which effect would happen twice or be lost",
		Long: `Runs your handler under semel work with faults: duplicates, kills of handler and worker, lost and late responses,
errors after a success. It counts the effects, and says for each attack whether they held, doubled or were lost, why, and what to change.

The handler's effects are seen in two ways. The attack starts an HTTP service, and tells a handler program its URL in
ATTACK_URL, or in a variable of yours: --env PAYMENTS_URL={url}; an endpoint (--http) is started by you, with the URL
that --listen makes a fixed one. The service takes any POST, PUT, PATCH or DELETE, and keeps Idempotency-Keys as a
payment service does. Or --effects counts what a journal has: a file of JSON lines, or a database with --query.

Exit status: 0 everything held, 3 something doubled, was lost, or is unknown, 2 usage, 4 no response from --http,
or the address of --listen is taken.`,
		Example: `  semel lab attack --key json:/order_id --env PAYMENTS_URL={url} --exec 'python3 charge.py'
  semel lab attack --body order.json --key json:/order_id --effects charges.jsonl -- ./charge
  semel lab attack --key json:/order_id --pipe 'node charge.js'
  semel lab attack --http http://127.0.0.1:9000/orders --listen 127.0.0.1:9099
  semel lab attack --exec ./pay.sh --only kill-after -o json | jq '.findings[] | {why, hint}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return output.Usage("attack takes no argument %q", args[0]).WithHint("put the handler after --: semel lab attack … -- "+
					"%s", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.labAttack(cmd.Context(), f, args) },
	}
	p := c.Flags()
	p.StringVar(&f.exec, "exec", "", "handler: a command for /bin/sh -c")
	p.StringVar(&f.pipe, "pipe", "", "handler: a command for /bin/sh -c that keeps running, as in work (docs/pipe.md)")
	p.StringVar(&f.http, "http", "", "handler: a URL that messages are POSTed to")
	p.StringVar(&f.body, "body", "", "file with a sample message, {key} where its key is (default: an order as JSON)")
	p.StringArrayVar(&f.headers, "header", nil, "NAME=VALUE: a header of the message, {key} is replaced (may be repeated)")
	p.StringVar(&f.key, "key", "id", "what must take effect once, as in work")
	p.StringArrayVar(&f.env, "env", nil, "NAME=VALUE for the handler program, {url} is the service (may be repeated)")
	p.StringVar(&f.listen, "listen", "", "address of the service (default: a free port of 127.0.0.1)")
	p.StringVar(&f.keyHeader, "key-header", "Idempotency-Key", "header in which your real service takes idempotency keys")
	p.StringVar(&f.effects, "effects", "", "count effects in a journal: a file of JSON lines with key or effect_key, or the "+
		"URL of a database")
	p.StringVar(&f.query, "query", "", "with a URL: the SELECT that lists effects, with a column key or effect_key")
	p.StringArrayVar(&f.only, "only", nil, "only this attack, and the plain run (may be repeated)")
	p.BoolVar(&f.list, "list", false, "list the attacks")
	p.Uint64Var(&f.seed, "seed", 0, "seed of what is drawn (default: drawn)")
	p.Var(&f.timeout, "timeout", "how long one run of the handler may take")
	p.Var(&f.lease, "visibility", "how long a message is kept from others where an attack waits for a takeover")
	p.StringVar(&f.takeover, "takeover", "resume", "as in work: resume, probe or once")
	fixed(p, "takeover", config.Values("takeover")...)
	p.StringVar(&f.probe, "probe", "", "as in work")
	p.StringVar(&f.ask, "probe-http", "", "as in work")
	p.StringArrayVar(&f.retry, "retry", nil, "as in work")
	return c
}

func (a *app) labAttack(ctx context.Context, f attackFlags, args []string) error {
	if f.list {
		return output.List(a.p, attack.List(), []string{"ATTACK", "WHAT HAPPENS", "WHAT IS DONE"}, func(i attack.Info) []any {
			return []any{i.Name, i.Title, i.Did}
		})
	}
	if len(args) == 0 && f.exec+f.pipe+f.http == "" {
		args = a.applied.Command // of --config
	}
	o, err := f.options(args)
	if err != nil {
		return err
	}
	progress, done := a.progress()
	rep, err := attack.Run(ctx, o, progress)
	done()
	if err != nil {
		return err
	}
	if a.p.Format == output.JSONL {
		var lines []any
		for i := range rep.Schedules {
			lines = append(lines, rep.Schedules[i])
		}
		for i := range rep.Findings {
			lines = append(lines, rep.Findings[i])
		}
		err = output.List(a.p, lines, nil, nil)
	} else {
		err = a.p.Object(rep, func(b *strings.Builder) { _ = attack.WriteText(b, rep, a.colour(), a.width()) })
	}
	if err != nil || rep.OK() {
		return err
	}
	return &output.Error{Code: output.CodeNegative, Err: fmt.Errorf("the attack's verdict is %s", rep.Verdict), Silent: true}
}

// options checks the flags against each other.
func (f attackFlags) options(args []string) (o attack.Options, err error) {
	o = attack.Options{
		Argv: args, HTTP: f.http, Key: f.key, Env: f.env, Listen: f.listen, KeyHeader: f.keyHeader, Only: f.only,
		Seed:    f.seed,
		Timeout: time.Duration(f.timeout), Lease: time.Duration(f.lease), Journal: attack.Journal{Place: f.effects,
			Query: f.query},
	}
	switch n := count(len(args) > 0, f.exec != "", f.pipe != "", o.HTTP != ""); {
	case n == 0:
		return o, output.Usage("attack needs your handler").WithHint("--exec 'python3 charge.py', --pipe 'python3 lines.py', --http URL, or -- PROG ARG…")
	case n > 1:
		return o, output.Usage("attack takes one handler").WithHint("--exec CMD, --pipe CMD, --http URL, or -- PROG ARG…")
	case f.exec != "" || f.pipe != "":
		o.Handler, o.Pipe = f.exec+f.pipe, f.pipe != ""
		o.Argv = worker.Shell(o.Handler)
	case o.HTTP != "":
		o.Handler = open.Redact(o.HTTP)
	default:
		o.Handler = strings.Join(args, " ")
	}
	if err := f.check(); err != nil {
		return o, err
	}
	if o.Headers, err = pairs("header", f.headers); err != nil {
		return o, err
	}
	if _, err := pairs("env", f.env); err != nil {
		return o, err
	}
	if f.body != "" {
		if o.Body, err = os.ReadFile(f.body); err != nil {
			return o, output.Usage("--body: %w", err)
		}
	}
	o.Work = append(o.Work, "--takeover", f.takeover)
	for _, w := range [][2]string{{"--probe", f.probe}, {"--probe-http", f.ask}} {
		if w[1] != "" {
			o.Work = append(o.Work, w[0], w[1])
		}
	}
	for _, rule := range f.retry {
		o.Work = append(o.Work, "--retry", rule)
	}
	return o, nil
}

func (f attackFlags) check() error {
	switch url := open.IsURL(f.effects); {
	case f.effects == "sql":
		return output.Usage("--effects is a journal here; handlers whose SQL semel commits need no attack").
			WithHint("a file of that name is --effects ./sql")
	case url && f.query == "":
		return output.Usage("--effects %s needs --query", open.Redact(f.effects)).
			WithHint(`--query "SELECT order_id AS key FROM charges"`)
	case !url && f.query != "":
		return output.Usage("--query goes with a database: --effects URL").WithHint("--effects sqlite:app.db")
	case time.Duration(f.timeout) < 100*time.Millisecond || time.Duration(f.timeout) > time.Hour:
		return output.Usage("--timeout %s: it must be between 100ms and 1h", f.timeout)
	case time.Duration(f.lease) < time.Second || time.Duration(f.lease) > time.Hour:
		return output.Usage("--visibility %s: it must be between 1s and 1h", f.lease)
	case f.keyHeader == "":
		return output.Usage("--key-header must not be empty")
	case f.takeover == "probe" && f.probe == "" && f.ask == "":
		return output.Usage("--takeover probe needs --probe or --probe-http")
	}
	return choice("takeover", f.takeover, config.Values("takeover"))
}

func count(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}
