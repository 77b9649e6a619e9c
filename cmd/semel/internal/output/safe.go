package output

import (
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"sync"
	"unicode/utf8"

	"github.com/semel-dev/semel/internal/words"
)

// Safe is a writer to a terminal or a log that lets no control reach it: what is not a character to be seen (control
// characters but newline and tab, format characters such as U+202E, line separators, invalid UTF-8) is written as an
// escape. Keys, reasons and what handlers print are other people's texts; a command that forgets to escape one is safe all
// the same. Colours pass if they were made by [Style]. The escapes of runes are those of JSON, so that JSON stays what it was.
type Safe struct {
	mu sync.Mutex
	w  io.Writer
	// tail is the beginning of a rune or of a style, whose rest comes with the next write.
	tail []byte
}

// NewSafe makes one before w.
func NewSafe(w io.Writer) *Safe { return &Safe{w: w} }

// mark begins a style. Nobody else can know it: it is drawn for every process.
var mark = []byte("\x00" + rand.Text())

// Style gives a text a style of terminals ("1" = bold, "31" = red), for a [Safe] writer.
func Style(code, text string) string {
	return string(mark) + code + "m" + text + string(mark) + "0m"
}

// Write implements io.Writer.
func (s *Safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := p
	if len(s.tail) > 0 {
		in = append(s.tail, p...)
		s.tail = nil
	}
	var out bytes.Buffer
	for len(in) > 0 {
		if n := plainASCII(in); n > 0 {
			out.Write(in[:n])
			in = in[n:]
			continue
		}
		if code, rest, ok := cutStyle(in); ok {
			out.WriteString("\x1b[" + code + "m")
			in = rest
			continue
		}
		if begunStyle(in) || !utf8.FullRune(in) {
			s.tail = bytes.Clone(in)
			break
		}
		r, size := utf8.DecodeRune(in)
		if words.Invisible(r, size) {
			out.WriteString(words.Escaped(r, in[0], size))
		} else {
			out.Write(in[:size])
		}
		in = in[size:]
	}
	if out.Len() > 0 {
		if _, err := s.w.Write(out.Bytes()); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// plainASCII is how many bytes at the beginning are safe as they are.
func plainASCII(b []byte) int {
	for i, c := range b {
		if (c < ' ' || c >= 0x7f) && c != '\n' && c != '\t' {
			return i
		}
	}
	return len(b)
}

// cutStyle takes a style from the beginning.
func cutStyle(in []byte) (code string, rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(in, mark)
	if !ok {
		return "", nil, false
	}
	before, rest, ok := bytes.Cut(rest, []byte("m"))
	return string(before), rest, ok
}

// begunStyle tells that a style may begin here whose end is not here yet.
func begunStyle(in []byte) bool {
	return bytes.HasPrefix(mark, in) || bytes.HasPrefix(in, mark)
}

// File is the file that w writes to, through a Safe or not; nil when it is none.
func File(w io.Writer) *os.File {
	if s, ok := w.(*Safe); ok {
		w = s.w
	}
	f, _ := w.(*os.File)
	return f
}

// Raw prints bytes as they are, unless stdout is a terminal.
func (p *Printer) Raw(b []byte) error {
	w := p.Out
	if s, ok := w.(*Safe); ok && !Terminal(File(w)) {
		w = s.w
	}
	_, err := w.Write(b)
	return err
}
