package machine

import (
	"strings"
	"unicode"

	"github.com/semel-dev/semel/driver"
)

// This file formats why a message became a dead letter. An operator reads it weeks later, without the log.

// The bounds of the causes in a dead letter's reason.
const (
	maxCauses     = 16
	maxCauseBytes = 1 << 10 // of each
)

// explained adds every error that err wraps to a reason, each on a line of its own, joined errors one after the other. An
// error whose text begins that of the error around it is left out.
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
	add := func(inner error, sole bool) {
		if inner == nil || len(out) >= maxCauses {
			return
		}
		if text := inner.Error(); text != "" && (!sole || !strings.HasPrefix(outer, text)) {
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

// explain adds the causes of a run's error to its dead letter's reason.
func (m *Machine) explain(it *Item, r *Result) {
	if l := it.settlement.DeadLetter; l != nil && r.Err != nil {
		l.Reason = explained(l.Reason, r.Err)
	}
}

// otherPayload is why a replay is ReplayedOtherPayload.
const otherPayload = "the key was executed with another body, and this one had no effect; set a fingerprint (of the body, or of " +
	"the fields that must not differ) to dead-letter such messages"

// notInDeadLetter is added to the reason of a duplicate whose body differs from that in the key's dead letter.
func notInDeadLetter(g *driver.Grant) string {
	if !g.OtherPayload {
		return ""
	}
	return " (this message has another body, which is in no dead letter)"
}

// The bounds of the words that are compared of a reason, and of the text that is read for them.
const (
	maxCommon  = 256
	maxCompare = 4 << 10
)

// commonReason is what failures of different messages for one reason have in common: the plain words of the first line. Text
// in quotes, words with a digit or another sign, and the words of the message's own key and id are left out.
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
