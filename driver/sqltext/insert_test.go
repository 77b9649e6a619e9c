package sqltext_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/sqltext"
)

// TestRowsFitIntoStatements: rows, parameters and bytes of a statement are bounded, and no row is left out.
func TestRowsFitIntoStatements(t *testing.T) {
	for _, c := range []struct {
		rows, columns int
		value         any
		sizes         []int
		want          int
	}{
		{100, 1, 1, []int{64, 16, 4, 1}, 64}, {63, 1, 1, []int{64, 16, 4, 1}, 16}, {15, 1, 1, []int{64, 16, 4, 1}, 4},
		{3, 1, 1, []int{64, 16, 4, 1}, 1}, {100, 1600, 1, []int{64, 16, 4, 1}, 16}, {100, 1, make([]byte, 1<<20), []int{64, 16, 4, 1}, 16},
		{100, 1, strings.Repeat("x", 100<<20), []int{64, 16, 4, 1}, 1}, {100, 1, map[string]any{}, []int{64, 16, 4, 1}, 16},
		{100, 1, 1, nil, 100}, {900, 1, 1, nil, 500}, {100, 1, make([]byte, 1<<20), nil, 16},
	} {
		columns, values := make([]string, c.columns), make([]any, c.columns)
		for i := range columns {
			columns[i], values[i] = fmt.Sprint("c", i), c.value
		}
		e, in, from := driver.Statements{}, sqltext.Inserts{Sizes: c.sizes, Bytes: 16 << 20}, 0
		for i := range c.rows {
			e.Insert("t", columns, values...)
			from = in.Add(0, i, &e.List[i], from)
		}
		parts, all := in.Take(), 0
		for _, p := range parts {
			all += len(p)
		}
		if len(parts[0]) != c.want || all != c.rows {
			t.Errorf("%d rows of %d columns: %d go into a statement, want %d; %d rows in all", c.rows, c.columns, len(parts[0]), c.want, all)
		}
	}
}

// TestStatementsThatAreRows: rows that go together are those whose statements insert one row of parameters, and do no more.
func TestStatementsThatAreRows(t *testing.T) {
	for sql, want := range map[string]string{
		`INSERT INTO a (b, c) VALUES ($1, $2)`:                                "INSERT INTO a (b, c) VALUES ($1, $2), ($3, $4)",
		"\n insert into \"a\"\"b\".\"c d\" ( \"e\" ,f )\n values( $1,\n$2 ) ": "\n insert into \"a\"\"b\".\"c d\" ( \"e\" ,f )\n values($1, $2), ($3, $4)",
		`INSERT INTO a VALUES ($1)`:                                           "INSERT INTO a VALUES ($1), ($2)",
		`INSERT INTO a (b, c) VALUES ($2, $1)`:                                "",
		`INSERT INTO a (b, c) VALUES ($1, $1)`:                                "",
		`INSERT INTO a (b, c) VALUES ($1,, $2)`:                               "",
		`INSERT INTO a (b, c) VALUES ($1 $2)`:                                 "",
		`INSERT INTO a (b, c) VALUES ($1, 2)`:                                 "",
		`INSERT INTO a (b, c) VALUES ($1, $2::int)`:                           "",
		`INSERT INTO a (b, c) VALUES ($1, f($2))`:                             "",
		`INSERT INTO a (b, c) VALUES ($1, $2), ($3, $4)`:                      "",
		`INSERT INTO a (b) VALUES ($1) RETURNING b`:                           "",
		`INSERT INTO a (b) VALUES ($1) ON CONFLICT DO NOTHING`:                "",
		`INSERT INTO a (b) VALUES ($1);`:                                      "",
		`INSERT INTO a (b) VALUES ($1) -- x`:                                  "",
		`INSERT INTO a (b[1]) VALUES ($1)`:                                    "",
		`INSERT INTO a (b) OVERRIDING SYSTEM VALUE VALUES ($1)`:               "",
		`INSERT INTO a (b) SELECT $1`:                                         "",
		`INSERT INTO a DEFAULT VALUES`:                                        "",
		`WITH x AS (SELECT 1) INSERT INTO a (b) VALUES ($1)`:                  "",
		`SELECT set_config('a', $1, true)`:                                    "",
	} {
		in := sqltext.Inserts{Texts: true}
		st := driver.Statement{SQL: sql, Args: make([]any, strings.Count(sql, "$")), Rows: -1}
		if is := in.Is(&st); is != (want != "") {
			t.Errorf("%s: a row %v", sql, is)
		} else if is && in.SQL([]sqltext.Row{{Statement: &st}, {Statement: &st}}) != want {
			t.Errorf("%s: two rows are %s, want %s", sql, in.SQL([]sqltext.Row{{Statement: &st}, {Statement: &st}}), want)
		}
		if in.Texts = false; in.Is(&st) {
			t.Errorf("%s: a row that Insert did not queue", sql)
		}
		st.Rows = 1
		if in.Texts = true; in.Is(&st) {
			t.Errorf("%s: a row that is counted", sql)
		}
	}
}
