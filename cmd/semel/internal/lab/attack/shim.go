package attack

import (
	"os"
	"strconv"
	"strings"
)

// point is where in a handler's run something happens to it.
type point string

const (
	atNone   point = ""
	atStart  point = "start"  // before its first instruction
	atEffect point = "effect" // at one of its requests to the service
	atEnd    point = "end"    // when everything is done, before the worker knows
)

// shim runs in front of a handler that is a program. It writes down its process id, and stops itself before or after the
// handler if a file asks for that. Otherwise it becomes the handler. It looks for the file before it writes, because the
// attack removes the file as soon as it reads the line. A run that is stopped at its start has all of its input: its worker
// may be stopped next, and could not pass it on.
//
// $1 is the file that it writes to; the handler follows.
const shim = `f=$1
shift
hold=
if [ -e "$f.start" ]; then
  hold=1
  cat >"$f.in.$$"
  exec <"$f.in.$$"
fi
printf 'start %s %s\n' "$$" "${SEMEL_ATTEMPT:-0}" >>"$f"
if [ "$hold" ]; then kill -STOP "$$"; fi
if [ -e "$f.end" ]; then
  "$@"
  c=$?
  printf 'end %s %s\n' "$$" "$c" >>"$f"
  kill -STOP "$$"
  exit "$c"
fi
exec "$@"
`

// shimmed puts the shim before a handler.
func shimmed(file string, argv []string) []string {
	return append([]string{"/bin/sh", "-c", shim, "sh", file}, argv...)
}

// shimLine is what a run wrote of itself.
type shimLine struct {
	at   point
	pid  int
	last int // attempt, or exit status
}

// readShim reads what is written by now; a file that is not there yet has no lines.
func readShim(file string) []shimLine {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var out []shimLine
	for line := range strings.Lines(string(b)) {
		part := strings.Fields(line)
		if len(part) != 3 || !strings.HasSuffix(line, "\n") {
			continue
		}
		pid, err1 := strconv.Atoi(part[1])
		last, err2 := strconv.Atoi(part[2])
		if err1 == nil && err2 == nil {
			out = append(out, shimLine{at: point(part[0]), pid: pid, last: last})
		}
	}
	return out
}
