package output

import (
	"bytes"
	"io"
	"log/slog"

	"github.com/lmittmann/tint"

	"github.com/semel-dev/semel/internal/words"
)

// stamp is the time in a log for people.
const stamp = "15:04:05.000"

// NewLog makes the logger for w, a [Safe] writer: lines for people, or JSON.
func NewLog(w io.Writer, json bool, level slog.Level) *slog.Logger {
	if json {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: redactedAttr}))
	}
	// tint's own colours are off: with them it takes texts apart to find escape sequences, and a text that only looks like
	// a quoted one becomes one.
	return slog.New(textHandler(w, level, Colour(File(w))))
}

func textHandler(w io.Writer, level slog.Level, colour bool) slog.Handler {
	if colour {
		w = colouredLines{w}
	}
	return tint.NewTextHandler(w, &tint.Options{
		Level: level, TimeFormat: stamp, NoColor: true, ReplaceAttr: printableAttr,
	})
}

// redactedAttr takes what is secret out of message and values.
func redactedAttr(_ []string, a slog.Attr) slog.Attr { return replaced(a, Redact) }

// printableAttr escapes them, too: a log line is one line.
func printableAttr(_ []string, a slog.Attr) slog.Attr {
	return replaced(a, func(s string) string { return words.Printable(Redact(s), 0) })
}

func replaced(a slog.Attr, f func(string) string) slog.Attr {
	text := ""
	switch v := a.Value.Any().(type) {
	case string:
		text = v
	case error:
		text = v.Error()
	}
	if shown := f(text); shown != text {
		a.Value = slog.StringValue(shown)
	}
	return a
}

// colouredLines colours time and level of a line.
type colouredLines struct{ w io.Writer }

var levelColour = map[string]string{"DBG": "2", "INF": "92", "WRN": "93", "ERR": "91"}

// Write gets one line.
func (l colouredLines) Write(p []byte) (int, error) {
	const end = len(stamp) + 4
	if len(p) < end {
		return l.w.Write(p)
	}
	level := string(bytes.TrimSpace(p[len(stamp):end]))
	line := Style("2", string(p[:len(stamp)])) + " " + Style(levelColour[level], level) + string(p[end:])
	if _, err := io.WriteString(l.w, line); err != nil {
		return 0, err
	}
	return len(p), nil
}
