package prom

import (
	_ "embed" // the rules and the dashboard
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

//go:embed rules.yml
var rules string

//go:embed dashboard.json
var dashboard string

// Thresholds are where the alerts begin.
type Thresholds struct {
	// Depth is how many messages may wait, DeadLetters how many dead letters, LeasesLost how many runs may lose their lease
	// in 15 minutes. An alert fires when they are exceeded, not when they are reached.
	Depth, DeadLetters, LeasesLost int
	// Age is how long the oldest message may wait, AuditAge how long ago the last audit may have been.
	Age, AuditAge time.Duration
	// Fresh and Completed are the objectives of 30 days, above 0 and below 1: the part of first runs that begin within a minute
	// after the message was sent, and the part of deliveries whose end needs no person.
	Fresh, Completed float64
}

// DefaultThresholds are those of semel alerts. They tolerate a lost lease now and then, and an audit once a day that takes
// its time.
var DefaultThresholds = Thresholds{Depth: 1000, LeasesLost: 2, Age: 15 * time.Minute, AuditAge: 26 * time.Hour, Fresh: .99, Completed: .999}

// Runbooks is the page that the rules' annotation runbook_url links to. It has a section for each rule, under its name.
const Runbooks = "https://github.com/semel-dev/semel/blob/main/docs/runbooks.md"

func (t Thresholds) check() error {
	objective := func(o float64) bool { return o > 0 && o < 1 }
	switch {
	case t.Depth < 0 || t.DeadLetters < 0 || t.LeasesLost < 0:
		return errors.New("prom: Depth, DeadLetters and LeasesLost must not be negative")
	case t.Age < time.Second || t.AuditAge < time.Second:
		return errors.New("prom: Age and AuditAge must be a second or more")
	case !objective(t.Fresh) || !objective(t.Completed):
		return errors.New("prom: Fresh and Completed must be above 0 and below 1, as 0.999")
	}
	return nil
}

// WriteRules writes alert rules for Prometheus (a rule file, YAML).
func WriteRules(w io.Writer, t Thresholds) error {
	if err := t.check(); err != nil {
		return err
	}
	budget := func(objective float64) string { return strconv.FormatFloat(1-objective, 'g', 6, 64) }
	_, err := io.WriteString(w, strings.NewReplacer(
		"«depth»", strconv.Itoa(t.Depth), "«dead letters»", strconv.Itoa(t.DeadLetters), "«leases»", strconv.Itoa(t.LeasesLost),
		"«age»", strconv.Itoa(int(t.Age.Seconds())), "«audit»", strconv.Itoa(int(t.AuditAge.Seconds())), "«runbooks»", Runbooks,
		"«late»", budget(t.Fresh), "«incomplete»", budget(t.Completed), " The flags of semel alerts set the values between «».", "",
	).Replace(rules))
	if err != nil {
		return fmt.Errorf("write alert rules: %w", err)
	}
	return nil
}

// WriteDashboard writes a dashboard for Grafana (JSON, to be imported).
func WriteDashboard(w io.Writer) error {
	if _, err := io.WriteString(w, dashboard); err != nil {
		return fmt.Errorf("write dashboard: %w", err)
	}
	return nil
}
