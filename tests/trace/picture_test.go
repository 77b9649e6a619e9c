package trace

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// picture draws spans as trees, without times and ids, so that it is the same each time.
type picture struct {
	spans []span
	lines []string
}

// one returns the only span of a name.
func (p *picture) one(t *testing.T, name string) span {
	t.Helper()
	var found []span
	for _, s := range p.spans {
		if s.name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %q: %+v", len(found), name, p.spans)
	}
	return found[0]
}

// span returns the span of an ID, or nil.
func (p *picture) span(id string) *span {
	for i := range p.spans {
		if p.spans[i].id == id {
			return &p.spans[i]
		}
	}
	return nil
}

// draw draws all traces. Those that only receive are drawn once for each message.
func (p *picture) draw() string {
	slices.SortStableFunc(p.spans, func(a, b span) int { return int(int64(a.start - b.start)) })
	nr := map[string]int{}
	for _, s := range p.spans {
		if s.parent == "" && s.name != "receive orders" {
			nr[s.trace] = len(nr) + 1
		}
	}
	received := map[string]bool{}
	for _, s := range p.spans {
		switch {
		case s.parent != "":
		case s.name != "receive orders":
			p.lines = append(p.lines, fmt.Sprintf("trace %d", nr[s.trace]))
			p.tree(&s, "  ", "  ", nr)
		}
	}
	for _, s := range p.spans {
		if text := p.line(&s, "  ", nr); s.name == "receive orders" && !received[text] {
			received[text] = true
			p.lines = append(p.lines, fmt.Sprintf("trace %d", len(nr)+len(received)), text)
		}
	}
	return strings.Join(p.lines, "\n") + "\n"
}

func (p *picture) tree(s *span, first, rest string, nr map[string]int) {
	p.lines = append(p.lines, p.line(s, first, nr))
	var children []*span
	for i := range p.spans {
		if p.spans[i].parent == s.id {
			children = append(children, &p.spans[i])
		}
	}
	for i, c := range children {
		if i == len(children)-1 {
			p.tree(c, rest+"└─ ", rest+"   ", nr)
		} else {
			p.tree(c, rest+"├─ ", rest+"│  ", nr)
		}
	}
}

// line is one span: its name, its process, what its attributes say, and its links.
func (p *picture) line(s *span, indent string, nr map[string]int) string {
	var says []string
	for _, name := range []string{"killed", "semel.attempt", "semel.unknown", "semel.decision", "semel.cause"} {
		v := s.attributes[name]
		switch {
		case v == "":
		case name == "semel.attempt":
			says = append(says, "attempt "+v)
		case name == "semel.unknown":
			says = append(says, "unknown")
		default:
			says = append(says, v)
		}
	}
	for _, id := range s.links {
		if to := p.span(id); to != nil {
			says = append(says, fmt.Sprintf("link: %s (trace %d, %s)", to.name, nr[to.trace], to.process))
		}
	}
	return strings.TrimRight(fmt.Sprintf("%s%s%s", pad(indent+s.name, 24), pad(s.process, 10), strings.Join(says, ", ")), " ")
}

// pad fills a text up to n characters.
func pad(s string, n int) string { return s + strings.Repeat(" ", max(n-len([]rune(s)), 1)) }
