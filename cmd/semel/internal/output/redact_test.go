package output

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		`dial "postgres://u:hunter2@h:5432/db": refused`:           `dial "postgres://u@h:5432/db": refused`,
		`Post "http://u:hunter2@h/x?token=hunter2": EOF`:           `Post "http://h/x?(not shown)": EOF`,
		`Post "https://hunter2@h/x?id={key}&page=2": EOF`:          `Post "https://h/x?id={key}&page=2": EOF`,
		`two: amqp://a:hunter2@h and redis://:hunter2@h/0`:         `two: amqp://a@h and redis://@h/0`,
		`"host=h password=hunter2 dbname=d"`:                       `"host=h password=(not shown) dbname=d"`,
		`password = 'hun\' ter2' x=1`:                              `password = (not shown) x=1`,
		`PGPASSWORD=hunter2;Pwd=hunter2`:                           `PGPASSWORD=(not shown);Pwd=(not shown)`,
		`postgres://u:a/hunter2@h/db`:                              `postgres://(not shown)`,
		`postgres://u:a?hunter2@h/db`:                              `postgres://(not shown)`,
		`sqs://orders?endpoint=http://u:hunter2@h`:                 `sqs://orders?(not shown)`,
		`sqlite:///tmp/a.db?queue=orders, token=7 key=order:a@b.c`: `sqlite:///tmp/a.db?queue=orders, token=7 key=order:a@b.c`,
		`http://127.0.0.1:8080/readyz?verbose=1`:                   `http://127.0.0.1:8080/readyz?verbose=1`,
	} {
		if got := Redact(in); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
}

// Every error, hint and log line goes through it.
func TestRedact_ErrorsAndLogs(t *testing.T) {
	bad := errors.New(`open "postgres://u:hunter2@h/db"`)
	for _, format := range []Format{Text, JSON} {
		var b bytes.Buffer
		(&Printer{Format: format, Err: &b}).Report(Failed("%w", bad).WithHint("psql 'password=hunter2'"))
		log := NewLog(&b, format == JSON, slog.LevelInfo)
		log.Info("password=hunter2", "err", bad, "text", "postgres://u:hunter2@h/db")
		if strings.Contains(b.String(), "hunter2") || strings.Count(b.String(), "postgres://u@h/db") != 3 {
			t.Error(b.String())
		}
	}
}
