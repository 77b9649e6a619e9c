package top

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

// Frame is a snapshot as lines of a terminal: at most height of them, none wider than width. With paused, it says that it stands.
func Frame(s *Snapshot, width, height int, paused bool) []string {
	title := "semel top  " + s.Queue
	if paused {
		title += "  PAUSED"
	}
	head := []string{
		spread(title, s.At.UTC().Format("2006-01-02 15:04:05 UTC"), width),
		map[string]string{"good": "✔ ", "warn": "! ", "bad": "✖ "}[s.Overview.Level] + s.Overview.Headline,
		"",
		s.queue(), s.person(), s.duplicates(),
		"",
	}
	foot := []string{"q quit   space pause"}
	body := height - len(head) - len(foot)
	workers, groups := s.workers(), s.groups()
	next := s.Overview.Next
	if len(next) > 0 {
		next = append([]string{""}, next...)
	}
	if len(groups) > 0 {
		groups = append([]string{""}, groups...)
	}
	body -= len(next)
	workers = first(workers, max(body-min(len(groups), body/2), 2), "workers")
	groups = first(groups, body-len(workers), "groups")
	lines := slices.Concat(head, workers, groups, next)
	lines = lines[:min(len(lines), max(height-len(foot), 0))]
	for len(lines) < height-len(foot) {
		lines = append(lines, "")
	}
	lines = append(lines, foot...)
	for i, l := range lines {
		lines[i] = strings.TrimRight(words.Printable(l, max(width-1, 1)), " ")
	}
	return lines
}

// first shortens lines to n, of which the last says how many are left out.
func first(lines []string, n int, what string) []string {
	switch {
	case len(lines) <= n:
		return lines
	case n < 2:
		return nil
	}
	return append(slices.Clone(lines[:n-1]), fmt.Sprintf("… and %d more %s", len(lines)-n+1, what))
}

// spread puts two texts at the ends of a line.
func spread(left, right string, width int) string {
	gap := width - 1 - utf8.RuneCountInString(left) - utf8.RuneCountInString(right)
	return left + strings.Repeat(" ", max(gap, 2)) + right
}

func (s *Snapshot) queue() string {
	q := s.Overview.Stats
	if q == nil {
		return "queue           no counts"
	}
	count := func(n int64) string { return words.AtLeast(n, q.AtLeast) }
	return fmt.Sprintf("queue           visible %s   in flight %s   delayed %s   oldest %s",
		count(q.Visible), count(q.InFlight), count(q.Delayed), driver.DurationText(q.Oldest.Truncate(time.Second)))
}

// uncertainPage is how many uncertain keys the console lists at most.
const uncertainPage = 50

func (s *Snapshot) person() string {
	o := &s.Overview
	return fmt.Sprintf("needs a person  unknown outcomes %s   dead letters %s", words.AtLeast(int64(len(o.Uncertain)), len(o.Uncertain) >= uncertainPage),
		words.AtLeast(int64(o.DeadLetters.Total), o.DeadLetters.More))
}

// duplicates are those of all workers, the most frequent cause first.
func (s *Snapshot) duplicates() string {
	all, duplicates, deliveries := map[string]float64{}, 0.0, 0.0
	for _, w := range s.Workers {
		deliveries += w.Deliveries
		for cause, n := range w.Duplicates {
			all[cause] += n
			duplicates += n
		}
	}
	if deliveries == 0 {
		return "duplicates      no worker shows deliveries"
	}
	var causes []string
	for cause := range all {
		causes = append(causes, cause)
	}
	slices.SortFunc(causes, func(a, b string) int {
		if all[a] != all[b] {
			return int(all[b] - all[a])
		}
		return strings.Compare(a, b)
	})
	text := fmt.Sprintf("duplicates      %.1f %% of %.0f deliveries", 100*duplicates/deliveries, deliveries)
	for _, c := range causes {
		text += fmt.Sprintf("   %s %.0f", c, all[c])
	}
	return text
}

func (s *Snapshot) workers() []string {
	if len(s.Workers) == 0 {
		return []string{"No worker is watched: --worker HOST:PORT, its --listen"}
	}
	lines := []string{fmt.Sprintf("%-10s  %-21s  %9s  %8s  %7s  %s", "CONSUMER", "WORKER", "RUN/SLOTS", "EFFECTS", "EFF/S", "STATE")}
	for _, w := range s.Workers {
		if w.Problem != "" {
			lines = append(lines, fmt.Sprintf("%-10s  %-21s  %s", "–", w.name(), w.Problem))
			continue
		}
		rate, state := "–", "works"
		if w.Rate >= 0 {
			rate = fmt.Sprintf("%.1f", w.Rate)
		}
		if len(w.Paused) > 0 {
			slices.Sort(w.Paused)
			state = "✖ " + strings.Join(w.Paused, ", ")
		}
		lines = append(lines, fmt.Sprintf("%-10s  %-21s  %9s  %8.0f  %7s  %s", words.Printable(w.Consumer, 9), w.name(),
			fmt.Sprintf("%.0f/%.0f", w.Running, w.Slots), w.Effects, rate, state))
	}
	return lines
}

// name is the address without what all addresses have.
func (w *Worker) name() string { return words.Printable(strings.TrimPrefix(w.Address, "http://"), 20) }

func (s *Snapshot) groups() []string {
	var lines []string
	for _, g := range s.Overview.DeadLetters.Groups {
		if len(lines) == 0 {
			lines = append(lines, "DEAD LETTERS  KIND       REASON")
		}
		lines = append(lines, fmt.Sprintf("%12d  %-9s  %s", g.Count, g.Kind, g.Class))
	}
	return lines
}
