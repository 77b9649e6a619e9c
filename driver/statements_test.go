package driver

import (
	"strings"
	"testing"
)

func TestInsertSQL(t *testing.T) {
	var s Statements
	columns := []string{"id", `a"mount`}
	s.Insert("app.le\"dger", columns, "x", 1)
	columns[0] = "changed"
	st := s.List[0]
	if want := `INSERT INTO "app"."le""dger" ("id", "a""mount") VALUES ($1, $2)`; st.SQL != want || st.Rows != -1 || len(st.Args) != 2 {
		t.Errorf("queued %+v, want %s", st, want)
	}
}

func TestInsertCheck(t *testing.T) {
	for part, queue := range map[string]func(s *Statements){
		"":                           func(s *Statements) { s.Insert("t", []string{"a"}, nil) },
		"2 values for 1 columns":     func(s *Statements) { s.Insert("t", []string{"a"}, 1, 2) },
		"0 values for 2 columns":     func(s *Statements) { s.Insert("t", []string{"a", "b"}) },
		"no column":                  func(s *Statements) { s.Insert("t", nil) },
		"name is empty":              func(s *Statements) { s.Insert("t", []string{""}, 1) },
		`table "", columns ["a"]: a`: func(s *Statements) { s.Insert("", []string{"a"}, 1) },
		"zero byte":                  func(s *Statements) { s.Insert("t\x00", []string{"a"}, 1) },
	} {
		var s Statements
		queue(&s)
		if err := s.Check(); (err == nil) != (part == "") || err != nil && !strings.Contains(err.Error(), part) {
			t.Errorf("%+v: error %v, want %q", s.List[0], err, part)
		}
	}
	var s Statements
	s.Exec("SELECT 1", 1, 2)
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
