package output

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("x"), 1},
		{Failed("x"), 1},
		{Usage("x"), 2},
		{Negative("x"), 3},
		{NotFound("x"), 3},
		{Unreachable("x"), 4},
		{&Error{Code: CodeInterrupted, Err: errors.New("x")}, 130},
		{fmt.Errorf("while: %w", Unreachable("x").WithHint("y")), 4},
	} {
		var errs bytes.Buffer
		p := &Printer{Format: Text, Err: &errs}
		if got := p.Report(c.err); got != c.want || !strings.HasPrefix(errs.String(), "semel: ") {
			t.Errorf("%v: %d %q, want %d", c.err, got, errs.String(), c.want)
		}
	}
}

// What wraps an error of a class keeps the class and the hint, and says all of it.
func TestReportJSON(t *testing.T) {
	var errs bytes.Buffer
	p := &Printer{Format: JSONL, Err: &errs}
	p.Report(fmt.Errorf("while <b>: %w", Usage("--x is bad").WithHint("--x %d", 1)))
	if got, want := errs.String(), `{"error":{"code":"usage","hint":"--x 1","message":"while <b>: --x is bad"}}`+"\n"; got != want {
		t.Errorf("got %s", got)
	}
	errs.Reset()
	if p.Report(&Error{Code: CodeNegative, Err: errors.New("said already"), Silent: true}) != 3 || errs.Len() > 0 {
		t.Errorf("a silent error said %q", errs.String())
	}
}

func TestFormats(t *testing.T) {
	type row struct {
		A string `json:"a"`
	}
	rows := []row{{"one\x1b[2J\n"}, {"<two>"}}
	for format, want := range map[Format]string{
		JSON:  `[{"a":"one\u001b[2J\n"},{"a":"<two>"}]` + "\n",
		JSONL: `{"a":"one\u001b[2J\n"}` + "\n" + `{"a":"<two>"}` + "\n",
		None:  "",
		Text:  "A\none\\x1b[2J\\x0a\n<two>\n",
	} {
		var out bytes.Buffer
		p := &Printer{Format: format, Out: &out}
		if err := List(p, rows, []string{"a"}, func(r row) []any { return []any{r.A} }); err != nil || out.String() != want {
			t.Errorf("%s: %q %v, want %q", format, out.String(), err, want)
		}
	}
	var out bytes.Buffer
	if err := List[row](&Printer{Format: JSON, Out: &out}, nil, nil, nil); err != nil || out.String() != "[]\n" {
		t.Errorf("nothing is %q", out.String())
	}
	var f Format
	if f.Set("yaml") == nil || f.Set("json") != nil || f != JSON {
		t.Errorf("format %q", f)
	}
}

// TestAppendFileIsItsOwnersAlone whatever the umask is; a file that is there keeps its mode and what is in it.
func TestAppendFileIsItsOwnersAlone(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, []byte("a"), 0o640); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{filepath.Join(dir, "new"): 0o600, old: 0o640} {
		f, err := AppendFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("b"); err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v; want %o", path, info.Mode(), err, want)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(old); err != nil || string(b) != "ab" {
		t.Errorf("%q, %v", b, err)
	}
}
