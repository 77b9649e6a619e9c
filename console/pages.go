package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// listLimit bounds what a page reads of a list.
const listLimit = 1000

// deadLettersView is a list of dead letters, without bodies.
type deadLettersView struct {
	Kind   string           `json:"kind,omitempty"`
	Group  string           `json:"group,omitempty"`
	Groups []groupView      `json:"groups"`
	Items  []deadLetterItem `json:"items"`
	// More: there are more than the list has.
	More bool `json:"more,omitempty"`
}

func (v *deadLettersView) total() string {
	if v.More {
		return fmt.Sprintf("%d+ dead letters", len(v.Items))
	}
	return words.Count(len(v.Items), "dead letter")
}

// groupView is what dead letters of one kind with a similar reason have in common.
type groupView struct {
	Kind     string    `json:"kind"`
	Reason   string    `json:"reason"`
	Count    int       `json:"count"`
	From, To time.Time `json:"-"`
}

// rank orders groups: uncertain ones come first.
func (g *groupView) rank() int {
	if g.Kind == string(driver.DeadLetterUncertain) {
		return 0
	}
	return 1
}

type deadLetterItem struct {
	ID       string     `json:"id"`
	Kind     string     `json:"kind"`
	Key      driver.Key `json:"key"`
	Reason   string     `json:"reason"`
	Attempts int        `json:"attempts"`
	DeadAt   time.Time  `json:"dead_at"`
}

// list reads the dead letters of the consumer, oldest first. kind and group ("" = any) choose.
func (c *Console) list(ctx context.Context, kind, group string) (v deadLettersView, err error) {
	v.Kind, v.Group, v.Groups, v.Items = kind, group, []groupView{}, []deadLetterItem{}
	all, err := c.read(ctx)
	if v.More = len(all) > listLimit; v.More {
		all = all[:listLimit]
	}
	groups := map[[2]string]*groupView{}
	for i := range all {
		l := &all[i]
		if !c.ours(l) {
			continue
		}
		class := reasonClass(ops.Reason(l.Reason))
		at := [2]string{string(l.Kind), class}
		g := groups[at]
		if g == nil {
			g = &groupView{Kind: string(l.Kind), Reason: class, From: l.DeadAt}
			groups[at] = g
		}
		g.Count++
		g.To = l.DeadAt
		if (kind == "" || kind == string(l.Kind)) && (group == "" || group == class) {
			v.Items = append(v.Items, deadLetterItem{l.ID, string(l.Kind), l.Key, ops.Reason(l.Reason), l.Attempts, l.DeadAt})
		}
	}
	for _, g := range groups {
		v.Groups = append(v.Groups, *g)
	}
	slices.SortFunc(v.Groups, func(a, b groupView) int {
		return cmp.Or(a.rank()-b.rank(), b.Count-a.Count, strings.Compare(a.Reason, b.Reason))
	})
	return v, err
}

// read reads dead letters, oldest first, one more than a list has. Where they can be read by page, that is without bodies.
func (c *Console) read(ctx context.Context) (all []driver.DeadLetter, err error) {
	pager, ok := driver.As[driver.DeadLetterPager](c.queue.DeadLetters)
	if !ok {
		return c.queue.DeadLetters.DeadLetters(ctx, listLimit+1)
	}
	f := driver.DeadLetterFilter{Limit: listLimit + 1}
	for {
		page, next, err := pager.PageDeadLetters(ctx, f)
		all = append(all, page...)
		if f.After, f.Limit = next, listLimit+1-len(all); err != nil || next == "" || f.Limit < 1 {
			return all, err
		}
	}
}

// ours reports that a dead letter is of the consumer, or of the queue without a consumer.
func (c *Console) ours(l *driver.DeadLetter) bool {
	return l.Key.Consumer == c.cfg.Consumer || l.Key.Consumer == ""
}

// reasonClass is a reason without what differs from message to message: numbers, and what follows the first line.
func reasonClass(reason string) string {
	reason, _, _ = strings.Cut(reason, "\n")
	var b strings.Builder
	digits := false
	for _, r := range reason {
		is := r >= '0' && r <= '9'
		if is && !digits {
			b.WriteRune('#')
		} else if !is {
			b.WriteRune(r)
		}
		if digits = is; b.Len() >= 100 {
			b.WriteRune('…')
			break
		}
	}
	return strings.ToValidUTF8(b.String(), "?")
}

func (c *Console) deadLetters(r *http.Request) (view, error) {
	return c.list(r.Context(), r.URL.Query().Get("kind"), r.URL.Query().Get("group"))
}

// deadLetterView is one dead letter. Body is shown only if the console shows bodies.
type deadLetterView struct {
	deadLetterItem

	MessageID     string            `json:"message_id"`
	Headers       map[string]string `json:"headers,omitempty"`
	FirstReceived time.Time         `json:"first_received"`
	Size          int               `json:"body_bytes"`
	Body          string            `json:"body,omitempty"`
	// Hidden says why there is no body.
	Hidden string `json:"hidden,omitempty"`
}

// bodyLimit bounds the body that a page shows, in bytes.
const bodyLimit = 64 << 10

func (c *Console) deadLetter(r *http.Request) (view, error) {
	l, err := c.one(r.Context(), r.URL.Query().Get("id"))
	if err != nil {
		return nil, err
	}
	v := deadLetterView{
		deadLetterItem: deadLetterItem{l.ID, string(l.Kind), l.Key, ops.Reason(l.Reason), l.Attempts, l.DeadAt},
		MessageID:      l.Message.ID, FirstReceived: l.FirstReceived, Size: len(l.Message.Body),
	}
	switch {
	case !c.cfg.Bodies:
		v.Hidden = "this console hides bodies and headers: start it with --bodies, or semel dlq show " + l.ID + " --body"
		return v, nil
	case len(l.Message.Body) > bodyLimit:
		v.Hidden = "the body is too large for a page: semel dlq show " + l.ID + " --body"
	case !utf8.Valid(l.Message.Body):
		v.Hidden = "the body is not text: semel dlq show " + l.ID + " --body"
	default:
		v.Body = string(l.Message.Body)
	}
	v.Headers = l.Message.Headers
	c.cfg.Log.InfoContext(r.Context(), "body shown", "audit", true, "by", c.cfg.By(r), "remote", r.RemoteAddr, "dead_letter", l.ID)
	return v, nil
}

func (c *Console) one(ctx context.Context, id string) (driver.DeadLetter, error) {
	l, ok, err := c.queue.DeadLetters.DeadLetter(ctx, id)
	if err == nil && (!ok || !c.ours(&l)) {
		err = refusal(http.StatusNotFound, "there is no dead letter %q of consumer %q: it was redriven or discarded, or never was", id, c.cfg.Consumer)
	}
	return l, err
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
	all, differ, err := ops.Workers(r.Context(), c.cfg.Store)
	if errors.Is(err, driver.ErrUnsupported) {
		return workersView{Workers: []ops.Worker{}}, nil
	}
	v := workersView{Kept: true, Workers: []ops.Worker{}}
	for _, w := range all {
		if w.Queue == c.queue.Name {
			v.Workers = append(v.Workers, w)
		}
	}
	for _, d := range differ {
		if d.Queue == c.queue.Name {
			v.Differ = append(v.Differ, d)
		}
	}
	return v, err
}

// entryView is one entry of the audit log.
type entryView struct {
	At     time.Time  `json:"at"`
	By     string     `json:"by"`
	What   string     `json:"what"`
	Key    driver.Key `json:"key"`
	From   string     `json:"from"`
	To     string     `json:"to"`
	Reason string     `json:"reason"`
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
		out = append(out, entryView{e.At, e.By, e.Kind.String(), e.Key, e.From.String(), e.To.String(), e.Reason})
	}
	return out, err
}

// Color is how the state is marked.
func (v keyView) Color() string {
	switch v.State {
	case driver.Completed.String():
		return "good"
	case driver.Uncertain.String():
		return "warn"
	case driver.FailedState.String():
		return "bad"
	}
	return "plain"
}
