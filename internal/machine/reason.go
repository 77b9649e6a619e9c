package machine

import "strings"

// This file writes down why a message became a letter. A person reads it weeks later, without the log.

// The bounds of what a letter says of the errors behind the one that ended it.
const (
	maxCauses     = 16
	maxCauseBytes = 1 << 10 // of each
)

// explained adds every error that err wraps to a reason, each on a line of its own: those of joined errors one after the
// other. What only begins the text of the error around it is told there already.
func explained(reason string, err error) string {
	causes := appendCauses(nil, err)
	if len(causes) == 0 {
		return reason
	}
	return reason + "\ncaused by: " + strings.Join(causes, "\ncaused by: ")
}

func appendCauses(out []string, err error) []string {
	if err == nil || len(out) >= maxCauses {
		return out
	}
	outer := err.Error()
	add := func(inner error, told bool) {
		if inner == nil || len(out) >= maxCauses {
			return
		}
		if text := inner.Error(); text != "" && (!told || !strings.HasPrefix(outer, text)) {
			if len(text) > maxCauseBytes {
				text = strings.ToValidUTF8(text[:maxCauseBytes], "") + "…"
			}
			out = append(out, strings.ReplaceAll(text, "\n", "; "))
		}
		out = appendCauses(out, inner)
	}
	switch e := err.(type) { //nolint:errorlint // the chain is walked here
	case interface{ Unwrap() error }:
		add(e.Unwrap(), true)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			add(inner, false)
		}
	}
	return out
}

// explain tells a letter that is on its way out what is behind its error.
func (m *Machine) explain(it *Item, r *Result) {
	if l := it.settlement.Letter; l != nil && r.Err != nil {
		l.Reason = explained(l.Reason, r.Err)
	}
}
