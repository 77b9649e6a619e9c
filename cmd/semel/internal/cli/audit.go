package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// auditFlags are those of semel audit.
type auditFlags struct {
	recordFlags
	effects, query string
	steps          []string
	since, until   moment
	grace          time.Duration
	examples       int

	log   bool
	key   string
	limit int

	count countFlags
}

func (a *app) auditCommand() *cobra.Command {
	f := &auditFlags{grace: time.Minute}
	c := &cobra.Command{
		Use:   "audit --store URL (--effects FILE|-|URL | --log)",
		Short: "Compare records with the effects that happened; show what operators did",
		Long: `audit compares the records of a consumer with a journal of effects from another source. It finds effects that happened more than
once, effects without record, completed records without effect, effects of failed or uncertain keys, effect keys that do not belong
to their key, and claims that no worker holds.

The journal is a file of JSON lines ("-" is stdin) or a read-only query (--effects URL --query SQL). Its members or columns are key
or effect_key (SEMEL_EFFECT_KEY), or both; at (RFC 3339, or a number since 1970); tenant; consumer. For handlers with named steps,
add step, and --step for each name. Others are ignored.

Exit status: 0 nothing found, 3 something found. With -o jsonl every finding is a line; text and json give the counts and some
examples of each kind. Memory grows by about half a kilobyte per distinct effect; records are read a page at a time.

With --log it prints the operators' audit log instead: who changed which key, when, and what it was before; and
requests that semel console --operate refused.` + scopeHelp,
		Example: `  semel audit --store 'sqlite:shop.db?queue=orders' --effects charges.jsonl --since 24h
  semel audit --store 'sqlite:shop.db?queue=orders' --effects sqlite:shop.db \
    --query "SELECT order_id AS key, created_at AS at FROM charges"
  stripe-export | semel audit --store 'postgres://…?queue=orders' --effects - -o jsonl > found.jsonl
  semel audit --store 'sqlite:shop.db?queue=orders' --log --since 7d -o jsonl > log.jsonl`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			if f.log {
				return a.auditLog(cmd.Context(), f)
			}
			return a.audit(cmd.Context(), f, cmd.Flags().Changed("tenant"))
		},
	}
	p := c.Flags()
	p.StringVar(&f.store, "store", "", "URL of the record store (default: --queue)")
	p.StringVar(&f.queue, "queue", "", "URL of the queue, where its records are")
	f.bind(p)
	p.StringVar(&f.tenant, "tenant", "", "only this tenant (default: all)")
	p.StringVar(&f.effects, "effects", "", "the journal: a file of JSON lines, - for stdin, or the URL of a database with --query")
	p.StringVar(&f.query, "query", "", "with a URL: the SELECT that lists effects, with columns key or effect_key, and at")
	p.StringArrayVar(&f.steps, "step", nil, "name of a handler's step with an effect (may be repeated)")
	p.Var(&f.since, "since", "ignore older ones: a time (RFC 3339) or how long ago (24h, 7d)")
	p.Var(&f.until, "until", "ignore younger ones: a time or how long ago")
	config.DurationVar(p, &f.grace, "grace", "ignore what is this recent: runs may be in flight, the journal may be behind")
	p.IntVar(&f.examples, "examples", 5, "findings of each kind to show with text and json")
	p.BoolVar(&f.log, "log", false, "print what operators did to the records")
	p.StringVar(&f.key, "key", "", "with --log: only this key")
	p.IntVar(&f.limit, "limit", 0, "with --log: only the latest N (0: all)")
	f.count.bind(c)
	return c
}

func (f *auditFlags) check(cmd *cobra.Command) error {
	url := open.IsURL(f.effects)
	switch {
	case f.log == (f.effects != ""):
		return output.Usage("audit wants --effects (compare records with effects) or --log (what operators did)").
			WithHint("%s --help", cmd.CommandPath())
	case url && f.query == "":
		return output.Usage("--effects %s needs --query", open.Redact(f.effects)).
			WithHint(`--query "SELECT order_id AS key, created_at AS at FROM charges"`)
	case !url && f.query != "":
		return output.Usage("--query goes with a database: --effects URL").WithHint("--effects sqlite:app.db")
	case f.examples < 0 || f.limit < 0:
		return output.Usage("--examples and --limit must not be negative")
	case !f.log && (f.key != "" || f.limit != 0):
		return output.Usage("--key and --limit go with --log")
	case !f.log && f.all:
		return output.Usage("--all-consumers goes with --log: effects are compared with the records of one consumer").
			WithHint("--consumer orders")
	case f.log && (f.count.textfile != "" || f.count.emf != ""):
		return output.Usage("--metrics and --emf go with --effects")
	case slices.Contains(f.steps, "") && len(f.steps) > 1:
		return output.Usage("--step wants names: beside named steps there is none without")
	}
	if err := f.count.check(); err != nil {
		return err
	}
	if since, until := f.since.at, f.until.at; !since.IsZero() && !until.IsZero() && until.Before(since) {
		return output.Usage("--until %s is before --since %s", rfc3339(until), rfc3339(since))
	}
	return nil
}

// auditReport is what is printed.
type auditReport struct {
	Verdict  string `json:"verdict"`
	Store    string `json:"store"`
	Consumer string `json:"consumer"`
	Since    string `json:"since,omitempty"`
	Until    string `json:"until,omitempty"`
	*ops.AuditReport
	Examples []ops.Finding `json:"examples"`
}

func (a *app) audit(ctx context.Context, f *auditFlags, oneTenant bool) (err error) {
	l, err := f.open(ctx, true)
	if err != nil {
		return err
	}
	defer closing(&err, l.set)
	if l.scope.consumer == "" {
		return output.Usage("whose effects? neither --store nor --queue names a queue").
			WithHint("--consumer orders, or --queue with the queue's URL")
	}
	r := auditReport{
		Store: l.store.Features().Name, Consumer: l.scope.consumer, Since: rfc3339(f.since.at), Until: rfc3339(f.until.at),
		Examples: []ops.Finding{},
	}
	shown := map[ops.FindingKind]int{}
	au := ops.NewAudit(ops.AuditScope{
		Consumer: l.scope.consumer, Tenant: f.tenant, AllTenants: !oneTenant, Steps: f.steps, Since: f.since.at, Until: f.until.at,
		Now: time.Now(), Grace: f.grace,
	}, func(x ops.Finding) error {
		if a.p.Format == output.JSONL {
			return output.List(a.p, []ops.Finding{x}, nil, nil)
		}
		if shown[x.Kind]++; shown[x.Kind] <= f.examples {
			r.Examples = append(r.Examples, x)
		}
		return nil
	})
	r.AuditReport = &au.AuditReport
	if err := open.Effects(ctx, f.effects, f.query, a.in, au.Add); err != nil {
		return err
	}
	if err := l.scanAll(ctx, driver.RecordFilter{Consumer: l.scope.consumer}, au.Record); err != nil {
		return err
	}
	if err := au.End(); err != nil {
		return err
	}
	queue := l.scope.consumer
	if names, _ := queuesOf(f.store, f.queue); len(names) > 0 {
		queue = names[0]
	}
	if err := f.count.leave(&au.AuditReport, l.scope.consumer, queue); err != nil {
		return err
	}
	return a.printAudit(r)
}

// printAudit prints the report, and is the command's exit.
func (a *app) printAudit(r auditReport) (err error) {
	found := r.Found()
	if r.Verdict = "clean"; found > 0 {
		r.Verdict = "findings"
	}
	if a.p.Format == output.JSONL {
		a.p.Notef("compared %s with %s: %s", words.Count(r.Effects, "effect"), words.Count(r.Records, "record"), words.Count(found, "finding"))
	} else {
		err = a.p.Object(r, func(b *strings.Builder) { textAudit(b, r) })
	}
	if err != nil || found == 0 {
		return err
	}
	return output.Negative("%s", words.Count(found, "finding"))
}

// scanAll calls each with all records, a page at a time where the store can.
func (l *ledger) scanAll(ctx context.Context, f driver.RecordFilter, each func(driver.Record) error) error {
	if s, ok := driver.As[driver.RecordScanner](l.store); ok {
		return s.ScanRecords(ctx, f, each)
	}
	all, err := l.insp.Records(ctx, f)
	if err != nil {
		return err
	}
	for _, r := range all {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

// auditWords name one finding of each kind, and several.
var auditWords = map[ops.FindingKind][2]string{
	ops.DuplicateEffect:     {"key with too many effects", "keys with too many effects"},
	ops.EffectWithoutRecord: {"effect without record", "effects without record"},
	ops.RecordWithoutEffect: {"completed record without effect", "completed records without effect"},
	ops.EffectNotCompleted:  {"effect of a key that is not completed", "effects of keys that are not completed"},
	ops.MismatchedEffectKey: {"effect key that is not its key's", "effect keys that are not their key's"},
	ops.OrphanClaim:         {"claim that no worker holds", "claims that no worker holds"},
}

func textAudit(b *strings.Builder, r auditReport) {
	lines := fmt.Sprintf("%s (%d not judged: out of range or too recent), %s (%d completed, %d dropped, %d under way)\n",
		words.Count(r.Effects, "effect"), r.EffectsOutside, words.Count(r.Records, "record"), r.Completed, r.Dropped, r.UnderWay)
	if r.OtherConsumers > 0 {
		lines += words.Count(r.OtherConsumers, "effect") + " of other consumers passed over\n"
	}
	for _, k := range ops.FindingKinds {
		mark := " "
		if r.Findings[k] > 0 {
			mark = "!"
		}
		kind := auditWords[k][1]
		if r.Findings[k] == 1 {
			kind = auditWords[k][0]
		}
		lines += fmt.Sprintf("%s %8d %s", mark, r.Findings[k], kind)
		if k == ops.DuplicateEffect && r.Findings[k] > 0 {
			lines += ", " + words.Count(r.AuditReport.DuplicateEffect, "effect") + " too many"
		}
		lines += "\n"
		for _, x := range r.Examples {
			if x.Kind == k {
				lines += "             " + exampleLine(x) + "\n"
			}
		}
	}
	lines += r.Verdict
	if r.Found() == 0 && r.Effects > 0 && r.EffectsOutside == r.Effects {
		lines += ", but no effect could be judged: choose another range, or --grace 0 when nothing is under way"
	}
	b.WriteString(lines + "\n")
}

func exampleLine(x ops.Finding) string {
	line := "key " + words.Printable(x.Key, 80)
	if x.Key == "" {
		line = "effect key " + x.EffectKey
	}
	if x.Step != "" {
		line += ", step " + words.Printable(x.Step, 80)
	}
	if x.State != "" {
		line += " (" + x.State + ")"
	}
	if x.At != nil {
		line += ", " + rfc3339(*x.At)
	}
	return line + ": " + words.Printable(x.Detail, 400)
}
