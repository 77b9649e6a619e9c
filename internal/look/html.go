package look

import (
	"fmt"
	"html"
	"strings"
)

// HTML is a piece of a page. Pages are made of it, and not of package html/template: a template can call any method by its
// name, so the linker would keep every exported method of every library in the binary (docs/adr/0025).
type HTML string

// literal is text of the program. The compiler refuses a variable that is a string.
type literal string

// Format is a literal with an argument for each {}: HTML as it is, everything else as fmt.Sprint has it, escaped. Values of
// attributes must be quoted, and what is put into a URL must be escaped for it before. Nothing else is safe inside of a script,
// a style sheet or the name of an attribute than HTML. A wrong number of arguments panics.
func Format(text literal, args ...any) HTML {
	var b strings.Builder
	rest := string(text)
	for _, a := range args {
		before, after, ok := strings.Cut(rest, "{}")
		if !ok {
			panic(fmt.Sprintf("look: %d arguments are too many for %q", len(args), text))
		}
		b.WriteString(before)
		b.WriteString(string(toHTML(a)))
		rest = after
	}
	if strings.Contains(rest, "{}") {
		panic(fmt.Sprintf("look: %d arguments are too few for %q", len(args), text))
	}
	b.WriteString(rest)
	return HTML(b.String())
}

func toHTML(a any) HTML {
	switch a := a.(type) {
	case HTML:
		return a
	case string:
		return HTML(html.EscapeString(a))
	}
	return HTML(html.EscapeString(fmt.Sprint(a)))
}

// If is h if ok, and nothing otherwise.
func If(ok bool, h HTML) HTML {
	if ok {
		return h
	}
	return ""
}

// Each is the HTML of all items, one after the other.
func Each[T any](items []T, f func(T) HTML) HTML {
	var b strings.Builder
	for _, item := range items {
		b.WriteString(string(f(item)))
	}
	return HTML(b.String())
}
