// Package cli is the command line: one file a command.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/lab"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/attack"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/sandbox"
	labworker "github.com/semel-dev/semel/cmd/semel/internal/lab/worker"
	"github.com/semel-dev/semel/cmd/semel/internal/nearest"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/worker"
)

// app is what all commands share.
type app struct {
	p     *output.Printer
	in    io.Reader
	stdin *os.File // nil when in is not a file
	log   *slog.Logger

	configFile, logLevel, logFormat string
	verbose                         bool

	// region and profile are put into the URLs of AWS that name none.
	region, profile string

	// applied has the settings of environment and configuration file; its Command is the handler's argv.
	applied *config.Applied
}

// Main runs the command line and returns the exit status. A second SIGINT or SIGTERM ends the process at once.
func Main(args []string, in io.Reader, out, errs io.Writer) int {
	if len(args) == 1 && args[0] == worker.GuardArg {
		if err := worker.ServeGuard(in, out); err != nil {
			return 1
		}
		return 0
	}
	if len(args) > 0 && args[0] == attack.ShimArg {
		return attack.Shim(args[1:])
	}
	if len(args) > 0 && args[0] == lab.HiddenCommand {
		return labworker.Main(args[1:])
	}
	if len(args) > 0 && args[0] == sandbox.HiddenCommand {
		return sandbox.Main(args[1:])
	}
	out, errs = output.NewSafe(out), output.NewSafe(errs)
	a := &app{p: &output.Printer{Format: guessFormat(args), Out: out, Err: errs}, in: in}
	a.stdin, _ = in.(*os.File)
	ctx, stop := a.signals()
	defer stop()
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = &output.Error{Code: output.CodeInterrupted, Err: errors.New("interrupted")}
	}
	return a.p.Report(err)
}

// Command is the command line as data, for man pages and completions.
func Command() *cobra.Command {
	return (&app{p: &output.Printer{Out: io.Discard, Err: io.Discard}}).root()
}

// guessFormat finds -o before the flags are parsed, so that errors of parsing come in the format that was asked for.
func guessFormat(args []string) output.Format {
	f := output.Text
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.VarP(&f, "output", "o", "")
	fs.BoolP("help", "h", false, "")
	_ = fs.Parse(args)
	return f
}

// sameSignal is how long further signals count as the first one: wrappers (GNU timeout, make, npm) signal the process, and
// then its group.
const sameSignal = time.Second

// signals returns a context that ends with the first SIGINT or SIGTERM; another one, a second later or more, exits the process.
func (a *app) signals() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		if again(c, done, cancel, func() { a.p.Notef("semel: stopping when the current work has ended; again to stop at once") }) {
			os.Exit(a.p.Report(&output.Error{Code: output.CodeInterrupted, Err: errors.New("interrupted twice: stopped at once")}))
		}
	}()
	return ctx, func() {
		signal.Stop(c)
		close(done)
		cancel()
	}
}

// again calls stop at the first signal, and reports whether another one came later than sameSignal after it. It calls notify
// when a further signal would count. done ends the wait.
func again(c <-chan os.Signal, done <-chan struct{}, stop, notify func()) bool {
	select {
	case <-done:
		return false
	case <-c:
	}
	stop()
	for same := time.After(sameSignal); same != nil; {
		select {
		case <-done:
			return false
		case <-c:
		case <-same:
			same = nil
		}
	}
	select {
	case <-c: // of that second
	default:
	}
	notify()
	select {
	case <-done:
		return false
	case <-c:
		return true
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "semel",
		Short: "Exactly-once effects for message handlers in any language",
		Long: `semel consumes messages and makes each take effect once. It acknowledges duplicates with the stored result, takes over
crashed runs, and dead-letters messages that fail for good. No message is lost.

Settings come from flags, then SEMEL_OPT_* in the environment, then --config FILE, then variables of common SQS workers
(QUEUE_URL, TABLE_NAME, …: semel env lists them), then defaults.

Exit status: 0 ok, 1 failed, 2 usage, 3 a check failed or something does not exist, 4 unreachable, 130 interrupted.`,
		Example: `  semel send --queue 'sqlite:shop.db?queue=orders' orders.jsonl
  semel work --queue 'sqlite:shop.db?queue=orders' --key json:/order_id --until-empty \
    --exec 'python3 charge.py'
  semel records explain order-12345 --store 'sqlite:shop.db?queue=orders'`,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.prepare(cmd) },
		Args:              noArgs,
	}
	version := root.Flags().Bool("version", false, "version for semel") // cobra's own writes with a template
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *version {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), readVersion().line())
			return err
		}
		return cmd.Help()
	}
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(usage)
	f := root.PersistentFlags()
	f.VarP(&a.p.Format, "output", "o", "what goes to stdout")
	f.StringVar(&a.configFile, "config", os.Getenv("SEMEL_OPT_CONFIG"), "YAML file with settings")
	fixed(f, "output", output.Formats()...)
	f.StringVar(&a.logLevel, "log-level", "info", "debug, info, warn or error; logs go to stderr")
	fixed(f, "log-level", logLevels...)
	f.StringVar(&a.logFormat, "log-format", "text", "text or json")
	fixed(f, "log-format", logFormats...)
	f.BoolVarP(&a.verbose, "verbose", "v", false, "log every step of every message: --log-level debug")
	f.StringVar(&a.region, "region", "", "region of sqs:// and dynamodb:// URLs that name none (default: AWS_REGION, or the profile's)")
	f.StringVar(&a.profile, "profile", "", "profile for sqs:// and dynamodb:// URLs that name none (default: AWS_PROFILE)")
	root.AddCommand(
		a.initCommand(), a.demoCommand(), a.labCommand(), a.benchCommand(), a.verifyCommand(), a.workCommand(), a.sendCommand(), a.relayCommand(), a.queueCommand(), a.recordsCommand(), a.dlqCommand(), a.workersCommand(), a.migrateCommand(),
		a.serveCommand(), a.extensionCommand(), a.consoleCommand(), a.topCommand(), a.sqsCommand(), a.doctorCommand(), a.adviseCommand(), a.auditCommand(), a.alertsCommand(), a.dashboardsCommand(), a.configCommand(), a.envCommand(), a.versionCommand(),
	)
	root.InitDefaultCompletionCmd()
	completions(root)
	wrapHelp(root)
	return root
}

// prepare runs before every command: settings from environment and file, then the logger.
func (a *app) prepare(cmd *cobra.Command) error {
	src := config.Source{File: a.configFile, Known: allFlags(cmd.Root()), Worker: cmd.Annotations["settings"] == "worker"}
	for c := cmd; c != nil; c = c.Parent() {
		src.Places = src.Places || c.Annotations["settings"] == "places"
	}
	applied, err := config.Apply(cmd.Flags(), src)
	if err != nil {
		return err
	}
	a.applied = applied
	if err := choice("log-level", strings.ToLower(a.logLevel), logLevels); err != nil {
		return err
	}
	if err := choice("log-format", a.logFormat, logFormats); err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return output.Usage("--log-level: %w", err)
	}
	if a.verbose {
		level = min(level, slog.LevelDebug)
	}
	a.log = output.NewLog(a.p.Err, a.logFormat == "json", level)
	slog.SetDefault(a.log)
	a.logAliases(cmd, src.Worker)
	return nil
}

// logAliases logs which variables of other programs had an effect, as info for workers and as debug for other commands. It always
// warns of values that it had to change.
func (a *app) logAliases(cmd *cobra.Command, worker bool) {
	for _, note := range a.applied.Notes {
		a.log.Warn("environment variable " + note)
	}
	if len(a.applied.Aliases) == 0 {
		return
	}
	level := slog.LevelDebug
	if worker && cmd.Name() == "work" {
		level = slog.LevelInfo
	}
	var attrs []slog.Attr
	for _, u := range a.applied.Aliases {
		attrs = append(attrs, slog.String(u.Var, "--"+u.Setting))
	}
	a.log.LogAttrs(cmd.Context(), level, "settings from the environment", attrs...)
}

// allFlags lists the names of the flags of all commands.
func allFlags(root *cobra.Command) []string {
	var out []string
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		add := func(f *pflag.Flag) { out = append(out, f.Name) }
		c.Flags().VisitAll(add)
		c.PersistentFlags().VisitAll(add)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	slices.Sort(out)
	return slices.Compact(out)
}

// flagError turns pflag's errors into usage errors that name the flag and hint at --help.
func flagError(cmd *cobra.Command, err error) error {
	if e := (*pflag.InvalidValueError)(nil); errors.As(err, &e) {
		return output.Usage("--%s: %w", e.GetFlag().Name, config.PlainValue(e)).WithHint("%s --help", cmd.CommandPath())
	}
	if e := (*pflag.NotExistError)(nil); errors.As(err, &e) {
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		if near := nearest.Name(e.GetSpecifiedName(), known, 4); near != "" {
			return output.Usage("%w", err).WithHint("did you mean --%s? %s --help", near, cmd.CommandPath())
		}
	}
	return output.Usage("%w", err).WithHint("%s --help", cmd.CommandPath())
}

// noArgs refuses arguments. For a command with subcommands they are unknown commands.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		e := output.Usage("unknown command %q for %q", args[0], cmd.CommandPath())
		cmd.SuggestionsMinimumDistance = 2
		if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
			return e.WithHint("%s %s", cmd.CommandPath(), s[0])
		}
		return e.WithHint("%s --help", cmd.CommandPath())
	}
	return output.Usage("%s takes no argument %q", cmd.CommandPath(), args[0]).WithHint("%s --help", cmd.CommandPath())
}

// oneArg wants exactly one argument.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return output.Usage("%s wants one %s, got %d arguments", cmd.CommandPath(), what, len(args)).
				WithHint("%s --help", cmd.CommandPath())
		}
		return nil
	}
}

// group makes a command that only has subcommands.
func group(use, short, long string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return output.Usage("%s wants a command", cmd.CommandPath()).WithHint("%s --help", cmd.CommandPath())
		},
	}
	c.AddCommand(subs...)
	return c
}

// confirm asks on the terminal unless yes; without a terminal it refuses.
func (a *app) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if a.stdin == nil || !output.Terminal(a.stdin) {
		return output.Usage("%s needs a confirmation, and stdin is no terminal", question).WithHint("--yes, or --dry-run to look first")
	}
	_, _ = fmt.Fprintf(a.p.Err, "%s? [y/N] ", question)
	var typed string
	_, _ = fmt.Fscanln(a.in, &typed)
	if typed = strings.ToLower(typed); typed == "y" || typed == "yes" {
		return nil
	}
	return output.Failed("not confirmed: nothing was changed")
}

// closing adds the error of closing to that of the work.
func closing(err *error, c io.Closer) {
	if cerr := c.Close(); cerr != nil && *err == nil {
		*err = cerr
	}
}
