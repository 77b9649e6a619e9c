package open

import (
	"fmt"
	"strings"
	"testing"

	"github.com/semel-dev/semel/adapters/mysql"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/ops"
)

func TestParseMySQL(t *testing.T) {
	t.Setenv("MYSQL_PWD", "")
	for raw, want := range map[string]struct{ shown, conn, queue string }{
		"mysql://h/shop?queue=orders":               {"mysql://h:3306/shop", "mysql://h/shop", "orders"},
		"mysql:///shop":                             {"mysql://127.0.0.1:3306/shop", "mysql:///shop", ""},
		"mysql://u:p%40%2F@h:1/shop?queue=a":        {"mysql://u@h:1/shop", "mysql://u:p%40%2F@h:1/shop", "a"},
		"MySQL://u@[::1]:2/shop?tls=true":           {"mysql://u@[::1]:2/shop?tls=true", "mysql://u@[::1]:2/shop?tls=true", ""},
		"mysql://h/shop?tls=preferred&queue=%C3%A4": {"mysql://h:3306/shop?tls=preferred", "mysql://h/shop?tls=preferred", "ä"},
	} {
		got, err := Parse("queue", raw)
		if err != nil || got.Shown != want.shown || *got.conn != want.conn || got.Queue != want.queue {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
	}
	t.Setenv("MYSQL_PWD", "s3cret")
	if got, err := Parse("queue", "mysql://u@h/shop"); err != nil || *got.conn != "mysql://u:s3cret@h/shop" || strings.Contains(got.Shown, "s3cret") {
		t.Errorf("with MYSQL_PWD: %+v, %v", got, err)
	}
}

func TestParseMySQL_Refuses(t *testing.T) {
	for raw, want := range map[string]string{
		"mysql:shop":                      "it has no // after the scheme",
		"mysql://h":                       "must be the name of a database",
		"mysql://h/":                      "must be the name of a database",
		"mysql://h/a/b":                   "must be the name of a database",
		"mysql://h/shop#x":                "behind # is not used",
		"mysql://h/shop?queue=":           "must be given once, and not be empty",
		"mysql://h/shop?queue=a&queue=b":  "must be given once, and not be empty",
		"mysql://h/shop?tlss=true":        "did you mean tls?",
		"mysql://h/shop?tls=maybe":        `tls is "maybe"`,
		"mysql://u:hunter2@h/shop?a=%zz":  "its query cannot be read",
		"mysql://u:hun/ter2@h/shop":       "is not a URL of the form",
		"mysql://u:hunter2@h:p/shop":      "is not a URL of the form",
		"mysql://u:hunter2@h/shop?pass=1": "unknown query parameter",
		"mysql://u@h x/shop":              "is not a URL of the form",
	} {
		got, err := Parse("queue", raw)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
		for _, text := range []string{fmt.Sprint(err), Redact(raw), output.Redact(raw), fmt.Sprintf("%+v", got)} {
			if strings.Contains(text, "ter2") {
				t.Errorf("%s: a password is shown: %s", raw, text)
			}
		}
	}
}

func TestMySQLFacts(t *testing.T) {
	sound := mysql.Facts{Version: "10.11.6-MariaDB", FlushLog: 1, MaxPacket: 16 << 20, MaxConnections: 151, Isolation: "READ-COMMITTED"}
	for _, f := range mysqlFacts(sound, 10, 1) {
		if f.Level != ops.LevelOK {
			t.Errorf("a sound server: %+v", f)
		}
	}
	for name, c := range map[string]struct {
		change             func(f *mysql.Facts)
		level, check, says string
	}{
		"read-only":    {func(f *mysql.Facts) { f.ReadOnly = true }, ops.LevelDanger, "server", "is read-only"},
		"flush":        {func(f *mysql.Facts) { f.FlushLog = 2 }, ops.LevelDanger, "commits", "innodb_flush_log_at_trx_commit is 2"},
		"binlog":       {func(f *mysql.Facts) { f.Binlog, f.SemiSync = true, true }, ops.LevelDanger, "replication", "sync_binlog is 0"},
		"asynchronous": {func(f *mysql.Facts) { f.Binlog, f.SyncBinlog = true, 1 }, ops.LevelWarning, "replication", "asynchronous"},
		"galera":       {func(f *mysql.Facts) { f.Galera = true }, ops.LevelWarning, "cluster", "Galera"},
		"engine":       {func(f *mysql.Facts) { f.Engine = "MyISAM" }, ops.LevelDanger, "engine", "MyISAM"},
		"isolation":    {func(f *mysql.Facts) { f.Isolation = "REPEATABLE-READ" }, ops.LevelDanger, "isolation", "REPEATABLE-READ"},
		"packet":       {func(f *mysql.Facts) { f.MaxPacket = 1 << 20 }, ops.LevelWarning, "packet", "1048576"},
		"connections":  {func(f *mysql.Facts) { f.MaxConnections = 12 }, ops.LevelDanger, "connections", "10 of the server's 12"},
	} {
		f := sound
		c.change(&f)
		var odd []ops.Check
		for _, fact := range mysqlFacts(f, 10, 1) {
			if fact.Level != ops.LevelOK {
				odd = append(odd, fact)
			}
		}
		if len(odd) != 1 || odd[0].Level != c.level || odd[0].Check != c.check || !strings.Contains(odd[0].Detail, c.says) || odd[0].Try == "" {
			t.Errorf("%s: %+v", name, odd)
		}
	}
}
