package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/driver"
)

// refused runs a command that ends with exit 3, and returns what it says.
func refused(s *shop, args ...string) string {
	s.t.Helper()
	var out, problems bytes.Buffer
	c := s.command(args...)
	c.Stdout, c.Stderr = &out, &problems
	if err := c.Run(); err == nil || c.ProcessState.ExitCode() != 3 {
		s.t.Fatalf("semel %v: %v, %s%s", args, err, out.Bytes(), problems.Bytes())
	}
	return out.String() + problems.String()
}

// TestFM41_LongTermOnTheCommandLine: a copy that comes after the retention becomes a dead letter; "records get" shows why, and a
// person decides. The file's times are moved, because an hour has to pass.
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
	contains := func(out string, says ...string) {
		t.Helper()
		for _, want := range says {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in %s", want, out)
			}
		}
	}
	age := func(d time.Duration) {
		db, err := sqlite.Open(t.Context(), filepath.Join(s.dir, "q.db"), sqlite.Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		for _, q := range []string{"UPDATE semel_record SET created_at = created_at - ? / 1000", "UPDATE semel_block SET due = due - ?"} {
			if _, err := db.SQL().ExecContext(t.Context(), q, d.Microseconds()); err != nil {
				t.Fatal(err)
			}
		}
	}
	send("first")
	work()
	age(60 * 24 * time.Hour)
	contains(s.semel(nil, "records", "sweep", "--store", s.url, "--dry-run"), "would expire 1 record")
	contains(s.semel(nil, "records", "sweep", "--store", s.url, "--yes"), "purged 0 records, expired 1 record")
	contains(s.semel(nil, "records", "get", "1", "--store", s.url, "-o", "json"), `"state":"EXPIRED"`, `"ended":"COMPLETED"`)
	contains(s.semel(nil, "records", "explain", "1", "--store", s.url), "dead letter of kind late")
	send("late")
	if contains(work(), `"late":1`); ran() != 1 {
		t.Fatalf("%d runs", ran())
	}
	var deadLetter struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(s.semel(nil, "dlq", "ls", "--queue", s.url, "-o", "jsonl", "--kind", "late")), &deadLetter); err != nil {
		t.Fatal(err)
	}
	contains(refused(s, "dlq", "redrive", deadLetter.ID, "--queue", s.url, "--yes"), "--new-generation")
	s.semel(nil, "dlq", "redrive", deadLetter.ID, "--queue", s.url, "--mode", "rerun", "--new-generation", "--yes")
	if work(); ran() != 2 {
		t.Errorf("%d runs after a deliberate rerun", ran())
	}
	contains(s.semel(nil, "doctor", "--queue", s.url, "--key", "json:/id", "--long-term", "400d"), "stay EXPIRED for 400",
		"within 400 days after that become dead letters")
	contains(s.semel(nil, "doctor", "--queue", s.url, "--key", "json:/id"), "stay EXPIRED for 400")
}

// TestEraseOnTheCommandLine: the record is removed, the audit log does not name the key, and a later message runs.
func TestEraseOnTheCommandLine(t *testing.T) {
	s := newShop(t)
	work := func() {
		s.semel(nil, "work", "--queue", s.url, "--key", "json:/id", "--until-empty", "--exec", "true")
	}
	s.semel([]byte(`{"id":"a","body":{"id":"secret"}}`+"\n"), "send", "--queue", s.url, "--envelope")
	work()
	if out := s.semel(nil, "records", "erase", "secret", "--reason", "request 1", "--store", s.url, "--yes"); !strings.Contains(out, "erased the record of key secret, which was COMPLETED") {
		t.Errorf("erase says %s", out)
	}
	refused(s, "records", "get", "secret", "--store", s.url)
	if out := s.semel(nil, "records", "erase", "--help"); !strings.Contains(out, "again, even if it is a copy") {
		t.Errorf("the help says %s", out)
	}
	db, err := sqlite.Open(t.Context(), filepath.Join(s.dir, "q.db"), sqlite.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	es, err := db.Store().Audit(t.Context(), driver.AuditFilter{})
	if err != nil || len(es) != 1 || es[0].Kind != driver.Erase || es[0].Key.Raw != "" || es[0].Reason != "request 1" {
		t.Errorf("the audit log is %+v, %v", es, err)
	}
}
