package postgres

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestUpgradedIsFresh: an upgraded database has what a new one has, and so has one that was made of the printed SQL.
func TestUpgradedIsFresh(t *testing.T) {
	_, upgraded := oldProgram(t)
	if _, _, err := Migrate(t.Context(), upgraded); err != nil {
		t.Fatal(err)
	}
	fresh, printed := emptySchema(t), emptySchema(t)
	if _, _, err := Migrate(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	if _, err := connectTo(t, printed).PgConn().Exec(t.Context(), SchemaSQL()).ReadAll(); err != nil {
		t.Fatal(err)
	}
	want := objects(t, fresh)
	if len(want) < 80 || !slices.ContainsFunc(want, func(s string) bool { return strings.Contains(s, "watermark") }) {
		t.Fatalf("%d objects: the test does not see the schema", len(want))
	}
	for name, url := range map[string]string{"upgraded": upgraded, "printed": printed} {
		got := objects(t, url)
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Fatalf("%s: object %d is\n%s\nwanted\n%s", name, i, got[min(i, len(got)-1)], want[min(i, len(want)-1)])
			}
		}
		openURL(t, url, Options{}) // the version is right
	}
}

// objects describes everything in a schema.
func objects(t *testing.T, url string) []string {
	t.Helper()
	conn := connectTo(t, url)
	var schema string
	if err := conn.QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema); err != nil {
		t.Fatal(err)
	}
	rows, err := conn.Query(t.Context(), `WITH n AS (SELECT current_schema()::regnamespace AS oid)
		SELECT 'function ' || pg_get_functiondef(p.oid) FROM pg_proc p, n WHERE p.pronamespace = n.oid
		UNION ALL SELECT format('column %s.%s %s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
			pg_get_expr(d.adbin, d.adrelid), a.attnum)
			FROM n, pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
			WHERE c.relnamespace = n.oid AND a.attnum > 0 AND c.relkind IN ('r', 'v')
		UNION ALL SELECT format('class %s %s %s %s', c.relname, c.relkind, c.reloptions, CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid)
			WHEN 'i' THEN pg_get_indexdef(c.oid) END) FROM pg_class c, n WHERE c.relnamespace = n.oid
		UNION ALL SELECT pg_get_constraintdef(k.oid) || k.conname FROM pg_constraint k, n WHERE k.connamespace = n.oid
		UNION ALL SELECT pg_get_triggerdef(g.oid) FROM n, pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
			WHERE c.relnamespace = n.oid AND NOT g.tgisinternal
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], schema, "SCHEMA")
	}
	slices.Sort(out)
	return out
}

// TestUpgradeKeepsRights: a role that could work before can work after, without being granted anything anew.
func TestUpgradeKeepsRights(t *testing.T) {
	o, url := oldProgram(t)
	role := fmt.Sprintf("semel_test_%016x", rand.Uint64())
	onServer(t, url, "CREATE ROLE "+role)
	t.Cleanup(func() { onServer(t, url, "DROP OWNED BY "+role); onServer(t, url, "DROP ROLE "+role) })
	o.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON semel_record TO " + role)
	o.exec("GRANT SELECT ON semel_records TO " + role)
	o.exec("GRANT SELECT ON semel_record TO PUBLIC")
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		table, right string
		want         bool
	}{
		{"semel_step", "DELETE", true}, {"semel_audit", "INSERT", true}, {"semel_steps", "SELECT", true},
		{"semel_steps", "DELETE", false}, {"semel_audits", "SELECT", true}, {"semel_step", "TRUNCATE", false},
	} {
		var may bool
		err := o.conn.QueryRow(t.Context(), "SELECT has_table_privilege($1, $2, $3)", role, x.table, x.right).Scan(&may)
		if err != nil || may != x.want {
			t.Errorf("%s of %s: %v, wanted %v, %v", x.right, x.table, may, x.want, err)
		}
	}
}
