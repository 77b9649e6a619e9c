package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// keyRef is a [driver.Key] in JSON.
type keyRef struct {
	Consumer string `json:"consumer,omitempty"`
	Tenant   string `json:"tenant,omitempty"`
	Raw      string `json:"key"`
}

// deadLettersView is a list of dead letters, without bodies.
type deadLettersView struct {
	Kind  driver.DeadLetterKind `json:"kind,omitempty"`
	Group string                `json:"group,omitempty"`
	Items []deadLetterItem      `json:"items"`
	// More: there are more than the list has.
	More bool `json:"more,omitempty"`
}

type deadLetterItem struct {
	keyRef

	ID       string                `json:"id"`
	Kind     driver.DeadLetterKind `json:"kind"`
	Reason   string                `json:"reason"`
	Attempts int                   `json:"attempts"`
	DeadAt   time.Time             `json:"dead_at"`
}

func itemOf(l *driver.DeadLetter) deadLetterItem {
	return deadLetterItem{keyRef(l.Key), l.ID, l.Kind, ops.Reason(l.Reason), l.Attempts, l.DeadAt}
}

// list reads the dead letters of the consumer, oldest first. kind and group ("" = any) choose.
func (c *Console) list(ctx context.Context, kind driver.DeadLetterKind, group string) (deadLettersView, error) {
	page, more, err := c.queue.Page(ctx, driver.DeadLetterFilter{Kind: kind, Class: group, Limit: ops.PageLimit})
	v := deadLettersView{Kind: kind, Group: group, Items: []deadLetterItem{}, More: more}
	for i := range page {
		if c.ours(&page[i]) {
			v.Items = append(v.Items, itemOf(&page[i]))
		}
	}
	return v, err
}

// ours reports that a dead letter is of the consumer, or of the queue without a consumer.
func (c *Console) ours(l *driver.DeadLetter) bool {
	return l.Key.Consumer == c.cfg.Consumer || l.Key.Consumer == ""
}

func (c *Console) deadLetters(r *http.Request) (view, error) {
	return c.list(r.Context(), driver.DeadLetterKind(r.URL.Query().Get("kind")), r.URL.Query().Get("group"))
}

// deadLetterView is one dead letter. Body is shown only if the console shows bodies.
type deadLetterView struct {
	deadLetterItem

	MessageID     string            `json:"message_id"`
	Headers       map[string]string `json:"headers,omitempty"`
	FirstReceived time.Time         `json:"first_received"`
	Size          int               `json:"body_bytes"`
	Body          string            `json:"body,omitempty"`
	// Hidden says why there is no body. Commands show it.
	Hidden   string   `json:"hidden,omitempty"`
	Commands []string `json:"commands,omitempty"`
}

// bodyLimit bounds the body that a page shows, in bytes.
const bodyLimit = 64 << 10

func (c *Console) deadLetter(r *http.Request) (view, error) {
	id := r.URL.Query().Get("id")
	l, ok, err := c.queue.DeadLetters.DeadLetter(r.Context(), id)
	switch {
	case err != nil:
		return nil, err
	case !ok || !c.ours(&l):
		return nil, refusal(http.StatusNotFound, "there is no dead letter %q of consumer %q: it was redriven or discarded, or never was", id, c.cfg.Consumer)
	}
	v := deadLetterView{
		deadLetterItem: itemOf(&l), MessageID: l.Message.ID, FirstReceived: l.FirstReceived, Size: len(l.Message.Body),
	}
	switch {
	case !c.cfg.Bodies:
		v.Hidden = "this console hides bodies and headers: start it with --bodies (Config.Bodies)"
	case len(l.Message.Body) > bodyLimit:
		v.Hidden = "the body is too large for a page"
	case !utf8.Valid(l.Message.Body):
		v.Hidden = "the body is not text"
	default:
		v.Body = string(l.Message.Body)
	}
	if v.Hidden != "" && c.cfg.CLI != nil {
		v.Commands = []string{c.cfg.CLI.DeadLetters("show", l.ID, "--body")}
	}
	if !c.cfg.Bodies {
		return v, nil
	}
	v.Headers = l.Message.Headers
	c.cfg.Log.InfoContext(r.Context(), "body shown", "audit", true, "by", c.cfg.By(r), "remote", r.RemoteAddr, "dead_letter", l.ID)
	return v, nil
}

// keyView is what is known of one key.
type keyView struct {
	ops.Timeline

	Tenant     string `json:"tenant,omitempty"`
	Token      uint64 `json:"token,string"`
	Generation uint32 `json:"generation"`
	Attempt    int    `json:"attempt"`
	// Can are the operations that the state allows.
	Can []string `json:"can,omitempty"`
	// Done says what an operation did.
	Done string `json:"done,omitempty"`

	DeadLetter  string    `json:"dead_letter,omitempty"`
	LeaseUntil  time.Time `json:"lease_until,omitzero"`
	RetainUntil time.Time `json:"retain_until,omitzero"`
	Result      int       `json:"result_bytes"`
}

func (c *Console) key(r *http.Request) (view, error) {
	q := r.URL.Query()
	return c.look(r.Context(), q.Get("k"), q.Get("tenant"))
}

func (c *Console) find(ctx context.Context, raw, tenant string) (driver.Record, error) {
	if raw == "" {
		return driver.Record{}, refusal(http.StatusBadRequest, "k is empty: which key?")
	}
	rec, ok, err := c.queue.Records.Record(ctx, driver.Key{Consumer: c.cfg.Consumer, Tenant: tenant, Raw: raw})
	if err == nil && !ok {
		err = refusal(http.StatusNotFound, "there is no record of key %q for consumer %q: it never came, its retention has ended, or it has a tenant",
			raw, c.cfg.Consumer)
	}
	return rec, err
}

// look explains a key.
func (c *Console) look(ctx context.Context, raw, tenant string) (v keyView, err error) {
	rec, err := c.find(ctx, raw, tenant)
	if err != nil {
		return v, err
	}
	in, err := ops.Gather(ctx, c.cfg.Store, rec)
	if err != nil {
		return v, err
	}
	in.CLI = c.cfg.CLI
	v = keyView{
		Timeline: ops.Explain(in), Tenant: rec.Key.Tenant, Token: rec.Token, Generation: rec.Generation, Attempt: rec.Attempt,
		LeaseUntil: rec.LeaseUntil, RetainUntil: rec.RetainUntil, Result: len(rec.Result),
	}
	kind := driver.DeadLetterFailed
	switch rec.State {
	case driver.Uncertain:
		v.Can, kind = []string{"completed", "retry", "failed"}, driver.DeadLetterUncertain
	case driver.Completed, driver.FailedState, driver.Expired:
		v.Can = []string{"reopen"}
	case driver.InProgress:
		v.Can = []string{"release"}
	case driver.Released, driver.Absent:
	}
	if rec.State == driver.Uncertain || rec.State == driver.FailedState {
		id := driver.DeadLetterID(kind, rec.Key, rec.Token, "")
		if _, ok, err := c.queue.DeadLetters.DeadLetter(ctx, id); err == nil && ok {
			v.DeadLetter = id
		}
	}
	return v, nil
}

// workersView lists the workers of the queue. Kept: the store keeps reports.
type workersView struct {
	Kept    bool             `json:"kept"`
	Workers []ops.Worker     `json:"workers"`
	Differ  []ops.Difference `json:"differ,omitempty"`
}

func (c *Console) workers(r *http.Request) (view, error) {
	all, differ, err := ops.Workers(r.Context(), c.cfg.Store, c.queue.Name)
	if errors.Is(err, driver.ErrUnsupported) {
		return workersView{Workers: []ops.Worker{}}, nil
	}
	return workersView{true, append([]ops.Worker{}, all...), differ}, err
}

// guaranteeView says whether the guarantee holds now.
type guaranteeView struct{ ops.Assessment }

func (c *Console) guarantee(r *http.Request) (view, error) {
	var checks []ops.Check
	if c.cfg.Checks != nil {
		var err error
		if checks, err = c.cfg.Checks(r.Context()); err != nil {
			return nil, err
		}
	}
	a, err := c.queue.Assess(r.Context(), c.cfg.Consumer, checks...)
	return guaranteeView{a}, err
}

// entryView is one entry of the audit log.
type entryView struct {
	keyRef

	At     time.Time `json:"at"`
	By     string    `json:"by"`
	What   string    `json:"what"`
	From   string    `json:"from"`
	To     string    `json:"to"`
	Reason string    `json:"reason"`
}

type auditView struct {
	Kept  bool        `json:"kept"`
	Items []entryView `json:"items"`
}

func (c *Console) auditLog(r *http.Request) (view, error) {
	_, kept := driver.As[driver.AuditLog](c.cfg.Store)
	list, err := c.entries(r.Context(), 200)
	return auditView{kept, list}, err
}

// entries are the latest of the audit log, newest first.
func (c *Console) entries(ctx context.Context, limit int) ([]entryView, error) {
	out := []entryView{}
	log, ok := driver.As[driver.AuditLog](c.cfg.Store)
	if !ok {
		return out, nil
	}
	all, err := log.Audit(ctx, driver.AuditFilter{Consumer: c.cfg.Consumer, Limit: limit})
	for _, e := range slices.Backward(all) {
		out = append(out, entryView{keyRef(e.Key), e.At, e.By, e.Kind.String(), e.From.String(), e.To.String(), e.Reason})
	}
	return out, err
}

// overviewView is the first page: what needs a person, what is stuck, what was done lately.
type overviewView struct {
	// Level is good, warn or bad; Headline says why in one sentence, Next what to do.
	Level    string   `json:"level"`
	Headline string   `json:"headline"`
	Next     []string `json:"next,omitempty"`

	Stats *driver.QueueStats `json:"stats,omitempty"`
	// Uncertain are keys whose outcome is unknown, the oldest first. Some have no dead letter: a sweep parked them.
	Uncertain   []caseView  `json:"uncertain"`
	DeadLetters ops.Groups  `json:"dead_letters"`
	Operations  []entryView `json:"operations,omitempty"`
	// Unknown are the parts that could not be read.
	Unknown []string `json:"unknown,omitempty"`
}

// stuckAfter is the age of the oldest message from which on the first page reports that the queue is stuck.
const stuckAfter = 15 * time.Minute

// Queue is the name of the queue.
func (c *Console) Queue() string { return c.queue.Name }

// Overview is the JSON of the first page. It blocks for a few reads; parts that cannot be read are named in it.
func (c *Console) Overview(ctx context.Context) ([]byte, error) { return json.Marshal(c.summary(ctx)) }

func (c *Console) overview(r *http.Request) (view, error) { return c.summary(r.Context()), nil }

func (c *Console) summary(ctx context.Context) overviewView {
	v := overviewView{Level: "good", Headline: "Nothing needs a person, and nothing is stuck"}
	s, ok, err := ops.Counts(ctx, c.cfg.Queue)
	switch {
	case err != nil:
		v.Unknown = append(v.Unknown, "what the queue holds: "+err.Error())
	case ok:
		v.Stats = &s
	}
	if v.DeadLetters, err = c.queue.Groups(ctx, c.cfg.Consumer); err != nil {
		v.Unknown = append(v.Unknown, "dead letters: "+err.Error())
	}
	if v.Uncertain, err = c.uncertain(ctx); err != nil {
		v.Unknown = append(v.Unknown, "keys whose outcome is unknown: "+err.Error())
	}
	if v.Operations, err = c.entries(ctx, 8); err != nil {
		v.Unknown = append(v.Unknown, "the audit log: "+err.Error())
	}
	v.judge()
	return v
}

// judge chooses the headline. What is not known is never good.
func (v *overviewView) judge() {
	uncertain, undecided := len(v.Uncertain), 0 // dead letters of uncertain keys are decided with their keys
	for _, g := range v.DeadLetters.Groups {
		if g.Kind == driver.DeadLetterUncertain {
			undecided += g.Count
		}
	}
	stuck := v.Stats != nil && v.Stats.Oldest > stuckAfter && v.Stats.Visible > 0
	switch n := v.DeadLetters.Total; {
	case len(v.Unknown) > 0:
		v.Level, v.Headline = "bad", "Not everything could be read: "+v.Unknown[0]
	case stuck:
		v.Level, v.Headline = "bad", fmt.Sprintf("The queue is stuck: its oldest message has waited for %s", driver.DurationText(v.Stats.Oldest.Truncate(time.Second)))
		v.Next = append(v.Next, "Is a worker running, and does its log say that it is paused?")
	case uncertain > 0:
		v.Level, v.Headline = "warn", fmt.Sprintf("The outcome of %s is unknown", words.Count(uncertain, "key"))
		if uncertain == uncertainLimit {
			v.Headline = fmt.Sprintf("The outcome of %d keys or more is unknown", uncertain)
		}
	case n > 0:
		v.Level, v.Headline = "warn", words.Count(n, "dead letter")+": a person has to decide"
	}
	if uncertain > 0 {
		v.Next = append(v.Next, "Look at the downstream for each uncertain key, then say on its page whether the effect happened.")
	}
	if v.DeadLetters.Total > undecided {
		v.Next = append(v.Next, "Find the cause of the largest group of dead letters, fix it, and redrive the group with a canary.")
	}
}

// caseView is a key that needs a person.
type caseView struct {
	keyRef

	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// uncertainLimit bounds how many uncertain keys the first page lists.
const uncertainLimit = 50

// uncertain lists the uncertain keys, as the store knows them, or else those that have dead letters.
func (c *Console) uncertain(ctx context.Context) ([]caseView, error) {
	out := []caseView{}
	if cases, ok := driver.As[driver.CaseLister](c.cfg.Store); ok {
		page, _, err := cases.Cases(ctx, driver.CaseFilter{Consumer: c.cfg.Consumer, State: driver.Uncertain, Limit: uncertainLimit})
		for _, r := range page {
			out = append(out, caseView{keyRef(r.Key), r.UpdatedAt, ops.Reason(r.Reason)})
		}
		return out, err
	}
	page, _, err := c.queue.Page(ctx, driver.DeadLetterFilter{Kind: driver.DeadLetterUncertain, Limit: uncertainLimit})
	for i := range page {
		if l := &page[i]; c.ours(l) {
			out = append(out, caseView{keyRef(l.Key), l.DeadAt, ops.Reason(l.Reason)})
		}
	}
	return out, err
}
