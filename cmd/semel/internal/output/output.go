package output

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/semel-dev/semel/internal/words"
)

// Format is how data is printed on stdout.
type Format string

// The formats.
const (
	Text  Format = "text"
	JSON  Format = "json"
	JSONL Format = "jsonl"
	None  Format = "none"
)

// Formats lists them.
func Formats() []string { return []string{string(Text), string(JSON), string(JSONL), string(None)} }

// Set implements the flag value.
func (f *Format) Set(s string) error {
	if !slices.Contains(Formats(), s) {
		return fmt.Errorf("unknown format %q (known: %s)", s, strings.Join(Formats(), ", "))
	}
	*f = Format(s)
	return nil
}

func (f *Format) String() string { return string(*f) }

// Type names the flag's value in help texts.
func (f *Format) Type() string { return strings.Join(Formats(), "|") }

// Printer prints one command's data and its errors.
type Printer struct {
	Format   Format
	Out, Err io.Writer
}

// machine reports that a program reads stdout, and then stderr as well.
func (p *Printer) machine() bool { return p.Format == JSON || p.Format == JSONL }

// Notef writes progress or advice for a person to stderr.
func (p *Printer) Notef(format string, args ...any) {
	_, _ = fmt.Fprintf(p.Err, format+"\n", args...)
}

// Object prints one value: as JSON, or as what text writes.
func (p *Printer) Object(v any, text func(b *strings.Builder)) error {
	switch p.Format {
	case None:
		return nil
	case JSON, JSONL:
		return encode(p.Out, v)
	case Text:
	}
	var b strings.Builder
	text(&b)
	_, err := io.WriteString(p.Out, b.String())
	return err
}

// Line prints one value: as JSON, or as a line of text.
func (p *Printer) Line(v any, format string, args ...any) error {
	return p.Object(v, func(b *strings.Builder) { fmt.Fprintf(b, format+"\n", args...) })
}

// List prints many values: a JSON array, one object a line, or a table.
func List[T any](p *Printer, items []T, header []string, row func(T) []any) error {
	switch p.Format {
	case None:
		return nil
	case JSON:
		if items == nil {
			items = []T{}
		}
		return encode(p.Out, items)
	case JSONL:
		for _, it := range items {
			if err := encode(p.Out, it); err != nil {
				return err
			}
		}
		return nil
	case Text:
	}
	if len(items) == 0 {
		return nil
	}
	rows := [][]string{make([]string, len(header))}
	for i, h := range header {
		rows[0][i] = strings.ToUpper(h)
	}
	right := make([]bool, len(header)) // columns of numbers
	for _, it := range items {
		var cells []string
		for i, c := range row(it) {
			limit := 80
			if i == len(header)-1 { // reasons stand last, with commands to paste
				limit = 600
			}
			switch c.(type) {
			case int, int64, uint32, uint64, float64:
				right[i] = true
			}
			cells = append(cells, words.Printable(fmt.Sprint(c), limit))
		}
		rows = append(rows, cells)
	}
	return writeTable(p.Out, rows, right)
}

// writeTable aligns the columns, with two spaces between them.
func writeTable(w io.Writer, rows [][]string, right []bool) error {
	width := make([]int, len(right))
	for _, cells := range rows {
		for i, c := range cells {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, cells := range rows {
		line := ""
		for i, c := range cells {
			gap := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if right[i] {
				c, gap = gap+c, ""
			}
			line += c + gap + "  "
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// Report prints an error on stderr, without what is secret, and returns its exit status.
func (p *Printer) Report(err error) int {
	e := As(err)
	if e.Silent {
		return e.Code.Exit()
	}
	message, hint := Redact(e.Error()), Redact(e.Hint)
	if p.machine() {
		body := map[string]string{"code": string(e.Code), "message": message}
		if hint != "" {
			body["hint"] = hint
		}
		_ = encode(p.Err, map[string]any{"error": body})
		return e.Code.Exit()
	}
	_, _ = fmt.Fprintf(p.Err, "semel: %s\n", strings.TrimPrefix(message, "semel: "))
	if hint != "" {
		_, _ = fmt.Fprintf(p.Err, "try: %s\n", hint)
	}
	return e.Code.Exit()
}

// Terminal reports that f is a terminal that wants colours and progress; nil is none.
func Terminal(f *os.File) bool { return f != nil && term.IsTerminal(int(f.Fd())) }

// Colour reports that f is a terminal and nobody asked for plain text.
func Colour(f *os.File) bool { return Terminal(f) && os.Getenv("NO_COLOR") == "" }

// AppendFile opens a file that lines are appended to. One that is not there is made for its owner alone, because keys, bodies
// and results of messages are in it; one that is there keeps its mode.
func AppendFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}
