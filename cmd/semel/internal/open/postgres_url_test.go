package open

import (
	"fmt"
	"strings"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

func TestParsePostgres(t *testing.T) {
	for raw, want := range map[string]struct{ shown, conn, queue string }{
		"postgres://shop@db.example.org/shop?queue=orders": {
			"postgres://shop@db.example.org/shop", "postgres://shop@db.example.org/shop?connect_timeout=10", "orders",
		},
		"postgresql://shop:s3cret@db:6543/shop?sslmode=require&queue=a%20b&pool_max_conns=4&connect_timeout=3": {
			"postgres://shop@db:6543/shop?sslmode=require&pool_max_conns=4&connect_timeout=3",
			"postgres://shop:s3cret@db:6543/shop?sslmode=require&pool_max_conns=4&connect_timeout=3", "a b",
		},
		// Several hosts, which net/url does not read.
		"postgres://u@h1:5432,h2:5433/db?target_session_attrs=read-write": {
			"postgres://u@h1:5432,h2:5433/db?target_session_attrs=read-write",
			"postgres://u@h1:5432,h2:5433/db?target_session_attrs=read-write&connect_timeout=10", "",
		},
		"postgres://u:p%40%2F%3A%23@[::1]:5432/db": {
			"postgres://u@[::1]:5432/db", "postgres://u:p%40%2F%3A%23@[::1]:5432/db?connect_timeout=10", "",
		},
		// pgx takes a colon in a password.
		"postgres://u:a:b@h/db": {"postgres://u@h/db", "postgres://u:a:b@h/db?connect_timeout=10", ""},
		"postgres://%2Fvar%2Frun%2Fpostgresql/db?user=u&password=s3cret": {
			"postgres://%2Fvar%2Frun%2Fpostgresql/db?user=u", "postgres://%2Fvar%2Frun%2Fpostgresql/db?user=u&connect_timeout=10&password=s3cret", "",
		},
		"postgres://u@h/db?search_path=app&my.setting=1": {
			"postgres://u@h/db?search_path=app&my.setting=1", "postgres://u@h/db?search_path=app&my.setting=1&connect_timeout=10", "",
		},
	} {
		got, err := Parse("queue", raw)
		conn := ""
		if got.conn != nil {
			conn = *got.conn
		}
		if err != nil || got.Scheme != "postgres" || got.Shown != want.shown || conn != want.conn || got.Queue != want.queue {
			t.Errorf("%s: shown %s conn %s queue %q %v,\nwant %+v", raw, got.Shown, conn, got.Queue, err, want)
		}
	}
}

// TestNoPasswordIsShown: whatever is wrong with a URL, no part of the password is in the error, the target or what
// Redact leaves.
func TestNoPasswordIsShown(t *testing.T) {
	for _, raw := range []string{
		"postgres://u:hunter2@h/db", "postgres://u:hunter2@h:99999/db", "postgres://u:hunter2@h:port/db",
		"postgres://u:hun/ter2@h/db", "postgres://u:12/hunter2@h/db", "postgres://u:hunter2#x@h/db", "postgres://u:hun?ter2@h/db",
		"postgres://u:hunter2@h@h/db", "postgres://u:hunter2%zz@h/db", "postgres://u:hunter2@h/db?sslmode=maybe",
		"postgres://u:hunter2@h/db?queue=", "postgres://u:hunter2@h/db?qeueu=a", "postgres://u:hunter2@h/db?queue=a&queue=b",
		"postgres://h/db?user=u&password=hunter2&sslmode=maybe", "postgres://h/db?pass%77ord=hunter2", "postgres://h/db?sslpassword=hunter2",
		"postgres:u:hunter2@h/db", "POSTGRES://u:hunter2@h/db", "postgres://u:hunter2@h/db/more", "postgres://u:hunter2@h/db?x=%zz",
		"postgres://u:hunter2@h/db?default_query_exec_mode=simple_protocol", "postgres://u:hunter2@h/db?pool_max_conns=many",
		"postgres://u:hunter2@[::1/db", "mysql://u:hunter2@h/db", "postgres//u:hunter2@h/db", "postgres://u:hunter2@h/db#frag",
		"postgres://:hunter2@h/db", "postgres://u:%68unter2@h/db?sslmode=maybe", "host=h password=hunter2", "password=hunter2 host=h:5",
		" HOST = h password='hun ter2'", "Server=tcp:h;Password=hunter2;Database=d", "sqlite://u:hunter2@h/db", "memory://u:hunter2@h/db",
		"sqlite:a.db?password=hunter2;x", "u:hunter2@h/db", "jdbc:postgresql://h/db?password=hunter2", "https://u:hunter2@h/x",
	} {
		got, err := Parse("queue", raw)
		shown := fmt.Sprintf("%v %+v %#v %s", got, got, got, got.Shown)
		if err != nil {
			e := output.As(err)
			shown += fmt.Sprintf("%v %+v %s", e, err, e.Hint)
			if e.Code != output.CodeUsage {
				t.Errorf("%s: %v is not of usage", raw, err)
			}
		}
		shown += Redact(raw)
		for _, part := range []string{"hunter", "unter2", "ter2", "hun/", "hun?"} {
			if strings.Contains(shown, part) && !strings.HasPrefix(raw, "postgres//") {
				t.Errorf("%s: shows %q: %s", raw, part, shown)
			}
		}
	}
}

func TestRedact(t *testing.T) {
	for raw, want := range map[string]string{
		"sqlite:a.db?queue=a@b": "sqlite:a.db?queue=a@b", "": "", "postgresql://u@h/db?queue=a": "postgresql://u@h/db?queue=a",
		"postgres://u:p@h/db?queue=a":                     "postgres://u@h/db?queue=a",
		"https://u:p@h/x?y=z":                             "https://h/x?(not shown)",
		"https://tok@h/x":                                 "https://h/x",
		"https://h/x?mail=a@b":                            "https://h/x?(not shown)",
		"https://u:p@h/{key}?id={effect_key}":             "https://h/{key}?id={effect_key}",
		"https://sqs.eu-west-1.amazonaws.com/1/o?wait=1s": "https://sqs.eu-west-1.amazonaws.com/1/o?wait=1s",
		"mysql://u:p@h/x?password=q":                      "mysql://u@h/x?(not shown)",
		"host=h password=p dbname=d":                      "(not shown)",
		"dbname=d password='p q'":                         "(not shown)",
		"a?b://c@d":                                       "a?b://c@d",
		"postgres://h/d?user=u&password=p&sslmode=none":   "postgres://h/d?user=u&sslmode=none",
		"postgres://u:a/b@h/d":                            "postgres://(not shown)",
		"https://u:a/b@h/d":                               "https://(not shown)",
	} {
		if got := Redact(raw); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}

// TestPostgresPlaces: a queue and a store join exactly when they are in one database, asked by one role, with the same
// session settings.
func TestPostgresPlaces(t *testing.T) {
	t.Setenv("PGHOST", "h")
	base := "postgres://u@h:5432/db"
	for raw, same := range map[string]bool{
		"postgres://u@h/db?queue=a":                   true,
		"postgresql://u:p@h/db?sslmode=disable":       true,
		"postgres://u@/db":                            true,
		"postgres://h/db?user=u":                      true,
		base + "?pool_max_conns=3&application_name=x": true,
		base + "?default_query_exec_mode=exec":        true,
		"postgres://u@h:5433/db":                      false,
		"postgres://u@h/db2":                          false,
		"postgres://v@h/db":                           false,
		"postgres://u@g/db":                           false,
		base + "?search_path=other":                   false,
		base + "?synchronous_commit=off":              false,
		"postgres://u@h,g/db":                         false,
		"sqlite:db":                                   false,
	} {
		if SamePlace(base, raw) != same {
			t.Errorf("%s and %s: same place is %v", base, raw, !same)
		}
	}
}

func TestInSchema(t *testing.T) {
	got, err := InSchema("postgres://u:p@h/db?search_path=a&queue=q", "demo")
	if want := "postgres://u:p@h/db?connect_timeout=10&search_path=demo"; err != nil || got != want {
		t.Errorf("%s %v", got, err)
	}
	if _, err := InSchema("sqlite:a.db", "demo"); err == nil || output.As(err).Code != output.CodeUsage {
		t.Errorf("sqlite: %v", err)
	}
}
