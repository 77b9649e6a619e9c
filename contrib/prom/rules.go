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
	// Depth is how many messages may wait, Dead letters how many dead letters, LeasesLost how many runs may lose their lease in 15
	// minutes. They are exceeded, not reached.
	Depth, DeadLetters, LeasesLost int
	// Age is how long the oldest message may wait, AuditAge how long ago the last audit may have been.
	Age, AuditAge time.Duration
}

// DefaultThresholds are those of semel alerts. A lost lease now and then is what leases are for, and an audit once a day may
// take its time.
var DefaultThresholds = Thresholds{Depth: 1000, LeasesLost: 2, Age: 15 * time.Minute, AuditAge: 26 * time.Hour}

// Runbooks is where the rules' annotation runbook_url leads to: a page with a section for each rule, under its name.
const Runbooks = "https://github.com/semel-dev/semel/blob/main/docs/monitoring.md"

// WriteRules writes alert rules for Prometheus (a rule file, YAML).
func WriteRules(w io.Writer, t Thresholds) error {
	if t.Depth < 0 || t.DeadLetters < 0 || t.LeasesLost < 0 || t.Age < time.Second || t.AuditAge < time.Second {
		return errors.New("prom: a threshold is negative, or Age or AuditAge is shorter than a second")
	}
	_, err := io.WriteString(w, strings.NewReplacer(
		"«depth»", strconv.Itoa(t.Depth), "«dead letters»", strconv.Itoa(t.DeadLetters), "«leases»", strconv.Itoa(t.LeasesLost),
		"«age»", strconv.Itoa(int(t.Age.Seconds())), "«audit»", strconv.Itoa(int(t.AuditAge.Seconds())), "«runbooks»", Runbooks, ". What stands between «» is set by\n# the flags of semel alerts.", ".",
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
