// Package sqltext reads the SQL of handlers, for adapters of databases.
package sqltext

import (
	"fmt"
	"strings"
)

// Head is the beginning of a statement, for errors.
func Head(sql string) string {
	const most = 60
	sql = strings.Join(strings.Fields(sql), " ")
	if len(sql) > most {
		return sql[:most] + "…"
	}
	return sql
}

// Keyword returns the first word of a statement in upper case, behind white space, comments, parentheses and semicolons, and
// the rest of the statement.
func (l *Lexer) Keyword() (word, rest string) {
	for l.Next() {
		switch {
		case l.Kind == WordToken:
			return strings.ToUpper(l.Text), l.In
		case l.Kind != SpaceToken && l.Kind != EndToken && l.Text != "(":
			return "", l.In
		}
	}
	return "", ""
}

// TokenKind is the kind of a token of [Lexer].
type TokenKind uint8

// The kinds of tokens.
const (
	OtherToken TokenKind = iota // literals, quoted names, operators, numbers
	SpaceToken                  // white space and comments
	WordToken
	ParamToken
	EndToken // ;
)

// Lexer splits the SQL of handlers, to tell keywords, placeholders and semicolons from those in literals and comments.
type Lexer struct {
	In     string // what is left
	Nested bool   // comments nest, as PostgreSQL's do
	MySQL  bool   // as MySQL reads: \ in literals, # and "-- " begin comments, @ begins a variable, no names in brackets
	Kind   TokenKind
	Text   string
	Err    error
}

// Next reads the next token; false: there is none, or Err.
func (l *Lexer) Next() bool {
	if l.In == "" || l.Err != nil {
		return false
	}
	n := 1
	c := l.In[0]
	l.Kind = OtherToken
	switch {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v' && l.Nested:
		l.Kind = SpaceToken
	case l.MySQL && (strings.HasPrefix(l.In, "/*!") || strings.HasPrefix(l.In, "/*M!")):
		l.Err = fmt.Errorf("comment that the server executes: %s", Head(l.In))
	case l.MySQL && c == '@':
		n += wordLen(l.In[1:])
	case strings.HasPrefix(l.In, "--") && (!l.MySQL || strings.TrimLeft(l.In[2:], " \t\r\n") != l.In[2:] || len(l.In) == 2), l.MySQL && c == '#':
		l.Kind = SpaceToken
		n = len(l.In)
		if i := strings.IndexByte(l.In, '\n'); i >= 0 {
			n = i + 1
		}
	case strings.HasPrefix(l.In, "/*"):
		l.Kind = SpaceToken
		n = l.comment()
	case c == '\'' || c == '"' || c == '`':
		n = l.quoted(c)
	case c == '[' && !l.MySQL:
		n = 1 + strings.IndexByte(l.In, ']')
		if n == 0 {
			l.Err = fmt.Errorf("quoted name is not closed: %s", Head(l.In))
			return false
		}
	case c == ';':
		l.Kind = EndToken
	case c == '?' || c == '$' || c == ':' || c == '@':
		l.Kind = ParamToken
		n += wordLen(l.In[1:])
		if c == ':' && n == 1 {
			l.Kind = OtherToken
		}
	case wordLen(l.In) > 0:
		n = wordLen(l.In)
		if c < '0' || c > '9' {
			l.Kind = WordToken
		}
	}
	if l.Err != nil {
		return false
	}
	l.Text, l.In = l.In[:n], l.In[n:]
	return true
}

// comment returns the length of a comment, which the end of the input ends too.
func (l *Lexer) comment() int {
	depth := 1
	for i := 2; i+1 < len(l.In); i++ {
		switch two := l.In[i : i+2]; {
		case two == "*/":
			i++
			if depth--; depth == 0 {
				return i + 1
			}
		case two == "/*" && l.Nested:
			i++
			depth++
		}
	}
	return len(l.In)
}

// quoted returns the length of a literal or name in quotes, in which a doubled quote stands for itself.
func (l *Lexer) quoted(q byte) int {
	for i := 1; i < len(l.In); i++ {
		if l.MySQL && l.In[i] == '\\' && q != '`' {
			i++
			continue
		}
		if l.In[i] != q {
			continue
		}
		if i+1 < len(l.In) && l.In[i+1] == q {
			i++
			continue
		}
		return i + 1
	}
	l.Err = fmt.Errorf("quote is not closed: %s", Head(l.In))
	return len(l.In)
}

func wordLen(s string) int {
	for i := range len(s) {
		c := s[i]
		if c != '_' && c < 0x80 && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return i
		}
	}
	return len(s)
}
