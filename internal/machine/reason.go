package machine

import (
	"strings"
	"unicode"

	"github.com/semel-dev/semel/driver"
)

// This file writes down why a message became a dead letter. A person reads it weeks later, without the log.

// The bounds of what a dead letter says of the errors behind the one that ended it.
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

// explain tells a dead letter that is on its way out what is behind its error.
func (m *Machine) explain(it *Item, r *Result) {
	if l := it.settlement.DeadLetter; l != nil && r.Err != nil {
		l.Reason = explained(l.Reason, r.Err)
	}
}

// otherPayload is why a replay is ReplayedOtherPayload.
const otherPayload = "the key was executed with another body, and this one had no effect; set a fingerprint (of the body, or of " +
	"the fields that must not differ) to dead-letter such messages"

// notInDeadLetter tells of a duplicate of a key with a dead letter, which has the message of the run, that it said something else.
func notInDeadLetter(g *driver.Grant) string {
	if !g.OtherPayload {
		return ""
	}
	return " (this message has another body, which is in no dead letter)"
}

// The bounds of what is compared of a reason, and of what is read for that.
const (
	maxCommon  = 256
	maxCompare = 4 << 10
)

// commonReason is what two failures for the same reason have in common, whatever message they are of: the plain words of the
// first line. What is in quotes, and words with a digit or another sign in them, are left out; so are the words of the
// message's own key and id.
func commonReason(text string, own ...string) string {
	text, _, _ = strings.Cut(text[:min(len(text), maxCompare)], "\n")
	var b strings.Builder
	left := false // something was left out here
	for text = strings.TrimSpace(text); text != "" && b.Len() < maxCommon; text = strings.TrimSpace(text) {
		var word string
		if q := text[:1]; strings.ContainsAny(q, "\"'`") {
			if end := strings.Index(text[1:], q); end >= 0 {
				word, text = text[:end+2], text[end+2:]
			} else {
				text = text[1:]
				continue
			}
		} else {
			end := strings.IndexAny(text, " \t\"`")
			if end < 0 {
				end = len(text)
			}
			word, text = strings.Trim(text[:end], ".,:;!?()[]{}<>"), text[end:]
		}
		switch {
		case word == "":
		case isPlainWord(word) && !hasWord(own, word):
			b.WriteString(word)
			b.WriteByte(' ')
			left = false
		case !left:
			b.WriteString("# ")
			left = true
		}
	}
	return b.String()
}

func isPlainWord(word string) bool {
	return strings.IndexFunc(word, func(c rune) bool { return !unicode.IsLetter(c) && c != '\'' }) < 0
}

// hasWord reports that a word is one of those in texts.
func hasWord(texts []string, word string) bool {
	for _, t := range texts {
		for w := range strings.FieldsFuncSeq(t, func(c rune) bool { return !unicode.IsLetter(c) && c != '\'' }) {
			if w == word {
				return true
			}
		}
	}
	return false
}
