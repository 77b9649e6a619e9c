package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/sqlite"
)

// refused runs a command that ends with exit 3, and answers what it says on stderr.
func refused(s *shop, args ...string) string {
	s.t.Helper()
	var out, problems bytes.Buffer
	c := s.command(args...)
	c.Stdout, c.Stderr = &out, &problems
	if err := c.Run(); err == nil || c.ProcessState.ExitCode() != 3 || out.Len() > 0 {
		s.t.Fatalf("semel %v: %v, %s%s", args, err, out.Bytes(), problems.Bytes())
	}
	return problems.String()
}

// TestFM41_LongTermOnTheCommandLine: a copy that comes after its record is gone becomes a letter; "records get" says why, and
// each decision of a person ends it. The file's times are moved, because an hour has to pass.
func TestFM41_LongTermOnTheCommandLine(t *testing.T) {
	s := newShop(t)
	s.write("run.sh", "echo run >> "+s.dir+"/ran\n")
	work := func(more ...string) string {
		args := append([]string{"work", "--queue", s.url, "--key", "json:/id", "--retention", "1h", "--long-term", "400d", "--until-empty",
			"--exec", "sh " + s.dir + "/run.sh", "-o", "json"}, more...)
		return s.semel(nil, args...)
	}
	ran := func() int {
		b, _ := os.ReadFile(filepath.Join(s.dir, "ran"))
		return strings.Count(string(b), "run")
	}
	send := func(id string) {
		s.semel([]byte(`{"id":"`+id+`","body":{"id":1}}`+"\n"), "send", "--queue", s.url, "--envelope")
	}
	sweep := func(says string) {
		t.Helper()
		if out := s.semel(nil, "records", "sweep", "--store", s.url, "--yes"); !strings.Contains(out, says) {
			t.Errorf("records sweep says %q, wanted %q", out, says)
		}
	}
	age := func(table, column string, d time.Duration) {
		db, err := sqlite.Open(t.Context(), filepath.Join(s.dir, "q.db"), sqlite.Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		for _, q := range []string{"UPDATE " + table + " SET " + column + " = " + column + " - ?", "UPDATE semel_block SET due = due - ?"} {
			if _, err := db.SQL().ExecContext(t.Context(), q, d.Microseconds()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for round, as := range []string{"completed", "retry", "failed"} {
		if round == 0 {
			send("first")
			work()
		}
		age("semel_record", "retain_until", 60*24*time.Hour)
		sweep("purged 0 records, parked 0 abandoned claims; 1 more go in ten minutes, when every worker knows their digests")
		age("semel_digest_young", "at", 11*time.Minute)
		sweep("purged 1 record, parked")
		before := ran()
		if out := refused(s, "records", "get", "1", "--store", s.url); !strings.Contains(out, "remembered as a digest") {
			t.Fatalf("round %d: records get says %s", round, out)
		}
		send("late" + as)
		if out := work(); ran() != before || !strings.Contains(out, `"long_term_hits":1`) {
			t.Fatalf("round %d: %d runs, %s", round, ran()-before, out)
		}
		if out := s.semel(nil, "dlq", "ls", "--queue", s.url, "-o", "jsonl"); strings.Count(out, `"kind":"uncertain"`) != 1 {
			t.Fatalf("round %d: letters %s", round, out)
		}
		s.semel(nil, "records", "resolve", "1", "--as", as, "--store", s.url, "--yes")
		work()
		want := before
		if as == "retry" {
			want++
		}
		if ran() != want {
			t.Errorf("round %d: %d runs after resolve --as %s", round, ran()-before, as)
		}
	}
	if out := s.semel(nil, "doctor", "--queue", s.url, "--key", "json:/id", "--long-term", "400d"); !strings.Contains(out, "the store has") ||
		!strings.Contains(out, "within 400 days after that are set aside") {
		t.Errorf("doctor says %s", out)
	}
	if out := s.semel(nil, "doctor", "--queue", s.url, "--key", "json:/id"); !strings.Contains(out, "--long-term 400d") {
		t.Errorf("doctor without --long-term says %s", out)
	}
}
