package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pairsFile has what make pairs showed, a line for each queue and store; the table in the README is made of it.
const (
	pairsFile  = "docs/pairs.jsonl"
	pairsBegin = "<!-- pairs: made by make pairs -->\n"
	pairsEnd   = "<!-- end of pairs -->\n"
)

// pair is a line of pairsFile: see tests/realinput.
type pair struct {
	Queue, Store string
	QueueVersion string `json:"queue_version"`
	StoreVersion string `json:"store_version"`
	Together     []string
	Payloads     int
	Messages     int
	Once         int
}

// renderPairs is the table of queues and stores.
func renderPairs(lines []byte) (string, error) {
	var (
		queues, stores, versions []string
		cells                    = map[[2]string]string{}
		last                     pair
	)
	add := func(to []string, s string) []string {
		if slices.Contains(to, s) {
			return to
		}
		return append(to, s)
	}
	for line := range bytes.Lines(lines) {
		var p pair
		if err := json.Unmarshal(line, &p); err != nil {
			return "", fmt.Errorf("%s: %s: %w", pairsFile, line, err)
		}
		if p.Once != p.Payloads || p.Payloads == 0 {
			return "", fmt.Errorf("%s: %s onto %s: %d of %d payloads have one effect", pairsFile, p.Queue, p.Store, p.Once, p.Payloads)
		}
		queues, stores = add(queues, p.Queue), add(stores, p.Store)
		versions = add(add(versions, p.Queue+" "+p.QueueVersion), p.Store+" "+p.StoreVersion)
		cells[[2]string{p.Queue, p.Store}] = together(p.Together)
		last = p
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| queue ↓ · records in → | %s |\n|---|%s\n", strings.Join(stores, " | "), strings.Repeat("---|", len(stores)))
	for _, q := range queues {
		fmt.Fprintf(&b, "| %s |", q)
		for _, s := range stores {
			c := cells[[2]string{q, s}]
			if c == "" {
				c = "–"
			}
			fmt.Fprintf(&b, " %s |", c)
		}
		b.WriteString("\n")
	}
	slices.Sort(versions)
	fmt.Fprintf(&b, "\n`make pairs` sent %d real webhooks three times, shuffled, through each pair: three workers, one killed. Each webhook had\n"+
		"one effect, and none was lost.\n\nVersions: %s.\n", last.Payloads, strings.Join(versions, ", "))
	return b.String(), nil
}

// together says in three words what commits in one write.
func together(parts []string) string {
	switch {
	case slices.Contains(parts, "queued effects") && slices.Contains(parts, "ack"):
		return "effect, record, ack"
	case slices.Contains(parts, "queued effects"):
		return "effect, record"
	case slices.Contains(parts, "ack"):
		return "record, ack"
	}
	return "record"
}

// checkPairs compares the table in the README with pairsFile, and writes it there with write.
func checkPairs(root string, write bool) (problems []string, err error) {
	lines, err := os.ReadFile(filepath.Join(root, pairsFile))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	want, err := renderPairs(lines)
	if err != nil {
		return nil, err
	}
	page := filepath.Join(root, "README.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	head, rest, ok := bytes.Cut(text, []byte(pairsBegin))
	is, tail, ok2 := bytes.Cut(rest, []byte(pairsEnd))
	switch {
	case !ok || !ok2:
		return []string{fmt.Sprintf("README.md: the marks %q and %q are missing", pairsBegin, pairsEnd)}, nil
	case string(is) == want:
		return nil, nil
	case write:
		return nil, os.WriteFile(page, slices.Concat(head, []byte(pairsBegin), []byte(want), []byte(pairsEnd), tail), 0o644) //nolint:gosec // a page of the docs
	}
	return []string{"README.md: the table of queues and stores is not that of " + pairsFile + ": run make pairs, or bin/repocheck -write ."}, nil
}
