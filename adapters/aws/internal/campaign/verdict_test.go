package campaign

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
)

// record is the part of a record's item that the verdict needs.
type record struct {
	state                      string
	result                     string
	uncertainty, failures, rev int
}

// number and text read an attribute of an item.
func number(it fakedynamodb.Item, name string) int {
	s, _ := it[name]["N"].(string)
	n, _ := strconv.Atoi(s)
	return n
}

func text(it fakedynamodb.Item, name string) string {
	s, _ := it[name]["S"].(string)
	return s
}

// records reads the table of records.
func (w *world) records() map[string]record {
	all := map[string]record{}
	for _, it := range w.dynamo.Items(records) {
		if text(it, "key") == "" {
			continue
		}
		r := record{
			state: text(it, "state"), uncertainty: number(it, "uncertainty"), failures: number(it, "failures"), rev: number(it, "rev"),
		}
		r.result = bytesOf(it, "result")
		if _, twice := all[text(it, "key")]; twice {
			w.fail("key %s has two records", text(it, "key"))
		}
		all[text(it, "key")] = r
	}
	return all
}

// deadLetters counts the dead letters of each key in the dead-letter queue, including those that the provider moved there.
func (w *world) deadLetters() map[string]int {
	all := map[string]int{}
	for _, m := range w.sqs.Messages(w.dead) {
		all[m.Attributes["key"]]++
	}
	return all
}

// ledger counts the effects in the ledger's items.
func (w *world) ledger() (n map[string]int, by map[string]string) {
	n, by = map[string]int{}, map[string]string{}
	for _, it := range w.dynamo.Items(ledger) {
		if key, ok := strings.CutPrefix(text(it, "id"), "result of "); ok {
			by[key] = text(it, "by")
		} else {
			n[text(it, "id")] = number(it, "n")
		}
	}
	return n, by
}

// judge reads the final state: every key took effect exactly once, or is a dead letter. Nothing is lost or doubled.
func (w *world) judge() verdict {
	rs, ls := w.records(), w.deadLetters()
	counts, by := w.ledger()
	v := verdict{plan: w.plan, counts: map[string]int{}, took: time.Since(w.began), runs: w.out.runs}
	for _, key := range slices.Sorted(maps.Keys(w.sent)) {
		v.messages += w.sent[key]
		v.doubts += rs[key].uncertainty
		n, most := counts[key], 1
		switch w.effects {
		case keyed:
			n = len(w.out.byKey[key])
		case plain:
			n, most = w.out.plain[key], 1+rs[key].uncertainty+rs[key].failures
		}
		w.judgeKey(key, rs[key], ls[key], n, most)
		if first, ok := w.replay[key]; ok && first != rs[key].result {
			w.fail("key %s was replayed as %q, its record says %q (I11)", key, first, rs[key].result)
		}
		if first, ok := w.completed[key]; ok && first != rs[key].result {
			w.fail("key %s was completed as %q, its record says %q (I9)", key, first, rs[key].result)
		}
		if w.effects == collected && rs[key].state == "COMPLETED" && by[key] != rs[key].result {
			w.fail("key %s: its effect is by %q, its record by %q (I18)", key, by[key], rs[key].result)
		}
	}
	for _, n := range ls {
		v.deadLetters += n
	}
	for _, p := range w.procs {
		for kind, n := range p.faults.Counts() {
			v.counts[kind] += n
		}
	}
	v.wrong, v.log = w.wrong, w.log
	return v
}

func (w *world) judgeKey(key string, r record, deadLetters, effects, most int) {
	about := fmt.Sprintf("key %s (%d messages, record %+v, %d dead letters)", key, w.sent[key], r, deadLetters)
	switch {
	case effects == 0 && deadLetters == 0:
		w.fail("%s had no effect and is no dead letter: lost", about)
	case effects > most:
		w.fail("%s took effect %d times, at most %d are accounted for", about, effects, most)
	case r.state == "COMPLETED" && effects == 0:
		w.fail("%s is completed and had no effect (I18)", about)
	case r.state == "FAILED" && deadLetters == 0:
		w.fail("%s failed and is no dead letter (I19)", about)
	case r.state == "UNCERTAIN" && deadLetters == 0:
		w.fail("%s is uncertain and is no dead letter (I19)", about)
	case deadLetters == 0 && r.state != "COMPLETED":
		w.fail("%s is neither completed nor a dead letter, and nothing is left to deliver: lost", about)
	}
	if w.effects == collected && effects == 1 && r.state != "COMPLETED" {
		w.fail("%s took effect and is not completed", about)
	}
}
