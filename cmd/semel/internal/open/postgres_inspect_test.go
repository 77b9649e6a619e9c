package open

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/ops"
)

func TestServerFacts(t *testing.T) {
	sound := server{version: "17.1", user: "shop", schema: "public", slots: 100, reserved: 3, used: 10, roleLimit: -1}
	with := func(change func(*server)) server {
		s := sound
		change(&s)
		return s
	}
	asked := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		got         ops.Check
		level, says string
	}{
		"a primary":            {sound.role(), ops.LevelOK, "a primary"},
		"a standby":            {with(func(s *server) { s.standby, s.readOnly = true, true }).role(), ops.LevelDanger, "a standby"},
		"read-only sessions":   {with(func(s *server) { s.readOnly = true }).role(), ops.LevelDanger, "read-only"},
		"rights":               {sound.rights(""), ops.LevelOK, "schema public"},
		"no rights":            {sound.rights("UPDATE on semel_record"), ops.LevelDanger, "lacks UPDATE on semel_record"},
		"connections":          {sound.connections(16, 1), ops.LevelOK, "up to 16, and needs 6"},
		"a small pool":         {sound.connections(5, 1), ops.LevelWarning, "up to 5, and needs 6"},
		"the last connections": {with(func(s *server) { s.used = 87 }).connections(16, 1), ops.LevelWarning, "the last ones"},
		"none left":            {with(func(s *server) { s.used = 92 }).connections(16, 1), ops.LevelDanger, "not enough"},
		"none for committers":  {with(func(s *server) { s.used = 85 }).connections(20, 8), ops.LevelDanger, "needs 20 to keep 8 committers busy"},
		"the role's limit":     {with(func(s *server) { s.roleLimit = 5 }).connections(16, 1), ops.LevelDanger, "role shop may open 5"},
		"a role without limit": {with(func(s *server) { s.roleLimit = 6 }).connections(16, 1), ops.LevelOK, ""},
		"clocks":               {serverClock(asked.Add(time.Second), asked, 2*time.Second), ops.LevelOK, "it is 0s off"},
		"clocks apart":         {serverClock(asked.Add(-2*time.Minute), asked, 0), ops.LevelWarning, "it is -2m0s off"},
	} {
		if c.got.Level != c.level || !strings.Contains(c.got.Detail, c.says) || c.level != ops.LevelOK && c.got.Try == "" {
			t.Errorf("%s: %+v, want %s and %q", name, c.got, c.level, c.says)
		}
	}
}

func TestWhyNotOpen(t *testing.T) {
	target, err := Parse("queue", "postgres://shop:hunter2@h/shop?queue=a")
	if err != nil {
		t.Fatal(err)
	}
	pg := func(code, message string) error {
		return fmt.Errorf("open database h:5432/shop: %w; Try: a fix", &pgconn.PgError{Severity: "FATAL", Code: code, Message: message})
	}
	for name, c := range map[string]struct {
		err         error
		code        output.Code
		says, hints string
	}{
		"no schema":        {&postgres.SchemaError{Want: 2}, output.CodeUnreachable, "no tables of semel", "semel migrate --store 'postgres://shop@h/shop'"},
		"an older schema":  {&postgres.SchemaError{Have: 1, Want: 2}, output.CodeUnreachable, "it has schema 1, this program needs 2", "semel migrate"},
		"a newer schema":   {&postgres.SchemaError{Have: 3, Want: 2}, output.CodeUnreachable, "newer semel (schema 3", "a newer semel"},
		"password":         {pg("28P01", "password authentication failed"), output.CodeUnreachable, "authentication failed", "a fix"},
		"unknown setting":  {pg("42704", "unrecognized configuration parameter \"x\""), output.CodeUsage, "refuses a parameter of the URL", "docs/cli.md"},
		"a pooler refuses": {pg("08P01", "unsupported startup parameter: search_path"), output.CodeUsage, "search_path", "ALTER ROLE"},
		"another protocol": {pg("08P01", "broken"), output.CodeUnreachable, "broken", "a fix"},
		"TLS first": {
			errors.New("open database h:5432/shop: failed to connect to `user=shop database=shop`:\n\th:5432 (h): tls error: server refused TLS connection\n\th:5432 (h): no"),
			output.CodeUnreachable, "open postgres://shop@h/shop: failed to connect to `user=shop database=shop`: h:5432 (h): no", "",
		},
	} {
		e := output.As(postgresError(target, "open", c.err))
		if e.Code != c.code || !strings.Contains(e.Error(), c.says) || !strings.Contains(e.Hint, c.hints) || strings.Contains(e.Error(), "Try") {
			t.Errorf("%s: %s %q, try %q", name, e.Code, e.Error(), e.Hint)
		}
	}
	e := output.As(notMigrated(target, fmt.Errorf("migrate database h:5432/shop: %w", &pgconn.PgError{Code: "42501", Message: "permission denied"})))
	if !strings.Contains(e.Hint, "GRANT CREATE") || !strings.HasPrefix(e.Error(), "open postgres://shop@h/shop: ") {
		t.Errorf("%q, try %q", e.Error(), e.Hint)
	}
}

// Under sslmode=prefer each address is tried with TLS and without. The error names it once.
func TestAnAttemptIsReportedOnce(t *testing.T) {
	for text, want := range map[string]string{
		"open database x: failed to connect to `user=u database=d`:\n\t127.0.0.1:1 (h): dial error: refused\n\t127.0.0.1:1 (h): dial error: refused":              "failed to connect to `user=u database=d`: 127.0.0.1:1 (h): dial error: refused",
		"failed to connect:\n\t[::1]:1 (h): dial error: refused\n\t127.0.0.1:1 (h): dial error: refused\n\t[::1]:1 (h): dial error: refused":                      "failed to connect: [::1]:1 (h): dial error: refused; 127.0.0.1:1 (h): dial error: refused",
		"failed to connect:\n\t127.0.0.1:1 (h): tls error: server refused TLS connection\n\t127.0.0.1:1 (h): server error: FATAL: no role \"u\" (SQLSTATE 28000)": "failed to connect: 127.0.0.1:1 (h): server error: FATAL: no role \"u\" (SQLSTATE 28000)",
	} {
		if got := plain(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
