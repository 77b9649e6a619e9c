package asltest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// expression is a path, a literal, or a call of an intrinsic function.
type expression struct {
	path, call string
	literal    any
	args       []expression
}

// parse reads an expression: all of the text.
func parse(text string) (expression, error) {
	e, rest, err := read(text)
	if err == nil && strings.TrimSpace(rest) != "" {
		err = fmt.Errorf("there is %q after the expression", rest)
	}
	return e, err
}

var (
	numberAhead = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?`)
	callAhead   = regexp.MustCompile(`^States\.[A-Za-z0-9]+\(`)
	pathAhead   = regexp.MustCompile(`^\$\$?(\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]+\])*`)
)

func read(text string) (e expression, rest string, err error) {
	text = strings.TrimLeft(text, " ")
	switch {
	case strings.HasPrefix(text, "$"):
		e.path = pathAhead.FindString(text)
		return e, text[len(e.path):], nil
	case strings.HasPrefix(text, "'"):
		var b strings.Builder
		for i := 1; i < len(text); i++ {
			switch text[i] {
			case '\\':
				i++
				if i < len(text) {
					b.WriteByte(text[i])
				}
			case '\'':
				return expression{literal: b.String()}, text[i+1:], nil
			default:
				b.WriteByte(text[i])
			}
		}
		return e, "", fmt.Errorf("%s: the string does not end", text)
	case numberAhead.MatchString(text):
		n := numberAhead.FindString(text)
		return expression{literal: json.Number(n)}, text[len(n):], nil
	case callAhead.MatchString(text):
		head := callAhead.FindString(text)
		e.call, rest = head[:len(head)-1], text[len(head):]
		for {
			rest = strings.TrimLeft(rest, " ")
			if after, closed := strings.CutPrefix(rest, ")"); closed {
				return e, after, e.known()
			}
			var arg expression
			if arg, rest, err = read(rest); err != nil {
				return e, "", err
			}
			e.args = append(e.args, arg)
			rest = strings.TrimLeft(rest, " ")
			if after, comma := strings.CutPrefix(rest, ","); comma {
				rest = after
			} else if !strings.HasPrefix(rest, ")") {
				return e, "", fmt.Errorf("%s: the arguments do not end", text)
			}
		}
	}
	return e, "", fmt.Errorf("%q is no expression", text)
}

// known refuses functions that eval does not have.
func (e expression) known() error {
	most := map[string]int{"States.UUID": 0, "States.Hash": 2, "States.JsonToString": 1, "States.Format": 99}
	n, ok := most[e.call]
	if !ok || len(e.args) > n || n < 99 && len(e.args) != n {
		return fmt.Errorf("%s with %d arguments is not known", e.call, len(e.args))
	}
	return nil
}

// eval computes an expression over the state's input and the context object.
func (e expression) eval(input, context any) (any, error) {
	switch {
	case e.path != "":
		return lookUp(e.path, input, context)
	case e.call == "":
		return e.literal, nil
	}
	args := make([]any, len(e.args))
	for i, a := range e.args {
		v, err := a.eval(input, context)
		if err != nil {
			return nil, err
		}
		args[i] = v
	}
	switch e.call {
	case "States.UUID":
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails
		b[6], b[8] = b[6]&0x0F|0x40, b[8]&0x3F|0x80
		h := hex.EncodeToString(b[:])
		return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-"), nil
	case "States.Hash":
		text, isText := args[0].(string)
		if !isText || args[1] != "SHA-256" {
			return nil, &StateError{intrinsic, fmt.Sprintf("hash %v with %v", args[0], args[1])}
		}
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:]), nil
	case "States.JsonToString":
		b, err := json.Marshal(args[0])
		return string(b), err
	}
	return format(args)
}

// format is States.Format: {} is the next argument.
func format(args []any) (any, error) {
	text, isText := args[0].(string)
	if !isText || strings.Count(text, "{}") != len(args)-1 {
		return nil, &StateError{intrinsic, fmt.Sprintf("format %v", args)}
	}
	for _, a := range args[1:] {
		switch a.(type) {
		case string, json.Number, bool, nil:
		default:
			return nil, &StateError{intrinsic, fmt.Sprintf("format %v", a)}
		}
		// What an argument contains is not a place for the next one.
		text = strings.Replace(text, "{}", strings.ReplaceAll(fmt.Sprint(a), "{}", "{\x00}"), 1)
	}
	return strings.ReplaceAll(text, "{\x00}", "{}"), nil
}

// lookUp follows a path; what is not there is an error.
func lookUp(p string, input, context any) (any, error) {
	v, rest := input, strings.TrimPrefix(p, "$")
	if strings.HasPrefix(rest, "$") {
		v, rest = context, rest[1:]
	}
	for _, step := range regexp.MustCompile(`\.[A-Za-z0-9_]+|\[[0-9]+\]`).FindAllString(rest, -1) {
		found := false
		if name, isName := strings.CutPrefix(step, "."); isName {
			var o map[string]any
			if o, found = v.(map[string]any); found {
				v, found = o[name]
			}
		} else if l, isList := v.([]any); isList {
			i, _ := strconv.Atoi(step[1 : len(step)-1])
			if found = i < len(l); found {
				v = l[i]
			}
		}
		if !found {
			return nil, &StateError{path, fmt.Sprintf("there is nothing at %s", p)}
		}
	}
	return v, nil
}

// fill computes a payload template.
func fill(template, input, context any) (any, error) {
	switch t := template.(type) {
	case map[string]any:
		out := make(map[string]any, len(t))
		for name, v := range t {
			var err error
			if plain, isExpression := strings.CutSuffix(name, ".$"); isExpression {
				var e expression
				if e, err = parse(v.(string)); err == nil {
					out[plain], err = e.eval(input, context)
				}
			} else {
				out[name], err = fill(v, input, context)
			}
			if err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(t))
		for i, v := range t {
			var err error
			if out[i], err = fill(v, input, context); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return template, nil
}
