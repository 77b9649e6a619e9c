package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// overviewView is the first page: what needs a person, what is stuck, what was done lately.
type overviewView struct {
	// Level is good, warn or bad; Headline says why in one sentence, Next what to do.
	Level    string   `json:"level"`
	Headline string   `json:"headline"`
	Next     []string `json:"next,omitempty"`

	Stats *statsView `json:"stats,omitempty"`
	// Uncertain are keys whose outcome is unknown, the oldest first. Some have no dead letter: a sweep parked them.
	Uncertain   []caseView      `json:"uncertain"`
	DeadLetters deadLettersView `json:"dead_letters"`
	Operations  []entryView     `json:"operations,omitempty"`
	// Unknown are the parts that could not be read.
	Unknown []string `json:"unknown,omitempty"`
}

// statsView is what the queue holds.
type statsView struct {
	Visible     int64         `json:"visible"`
	InFlight    int64         `json:"in_flight"`
	Delayed     int64         `json:"delayed"`
	Oldest      time.Duration `json:"oldest_ns"`
	Approximate bool          `json:"approximate,omitempty"`
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
	if q, ok := driver.As[driver.QueueInspector](c.cfg.Queue); ok {
		if s, err := q.Stats(ctx); err != nil {
			v.Unknown = append(v.Unknown, "what the queue holds: "+err.Error())
		} else {
			v.Stats = &statsView{s.Visible, s.InFlight, s.Delayed, s.Oldest, s.Approximate}
		}
	}
	ls, err := c.list(ctx, "", "")
	if err != nil {
		v.Unknown = append(v.Unknown, "dead letters: "+err.Error())
	}
	v.DeadLetters = ls
	if v.Uncertain, err = c.uncertain(ctx, ls.Items); err != nil {
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
	for _, l := range v.DeadLetters.Items {
		if l.Kind == string(driver.DeadLetterUncertain) {
			undecided++
		}
	}
	stuck := v.Stats != nil && v.Stats.Oldest > stuckAfter && v.Stats.Visible > 0
	switch n := len(v.DeadLetters.Items); {
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
		v.Level, v.Headline = "warn", fmt.Sprintf("%s: a person has to decide", v.DeadLetters.total())
	}
	if uncertain > 0 {
		v.Next = append(v.Next, "Look at the downstream for each uncertain key, then say on its page whether the effect happened.")
	}
	if len(v.DeadLetters.Items) > undecided {
		v.Next = append(v.Next, "Find the cause of the largest group of dead letters, fix it, and redrive the group with a canary.")
	}
}

// caseView is a key that needs a person.
type caseView struct {
	Key    driver.Key `json:"key"`
	Since  time.Time  `json:"since"`
	Reason string     `json:"reason"`
}

// uncertainLimit bounds how many uncertain keys the first page lists.
const uncertainLimit = 50

// uncertain lists the uncertain keys, as the store knows them, or else those that have dead letters.
func (c *Console) uncertain(ctx context.Context, items []deadLetterItem) ([]caseView, error) {
	out := []caseView{}
	if cases, ok := driver.As[driver.CaseLister](c.cfg.Store); ok {
		page, _, err := cases.Cases(ctx, driver.CaseFilter{Consumer: c.cfg.Consumer, State: driver.Uncertain, Limit: uncertainLimit})
		for _, r := range page {
			out = append(out, caseView{r.Key, r.UpdatedAt, ops.Reason(r.Reason)})
		}
		return out, err
	}
	for _, l := range items {
		if l.Kind == string(driver.DeadLetterUncertain) && len(out) < uncertainLimit {
			out = append(out, caseView{l.Key, l.DeadAt, ops.Reason(l.Reason)})
		}
	}
	return out, nil
}

// Wait is the age of the oldest message.
func (s statsView) Wait() string { return driver.DurationText(s.Oldest.Truncate(time.Second)) }
