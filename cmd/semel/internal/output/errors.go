// Package output is how the command line speaks: data on stdout in the format that was asked for, errors on stderr with
// a code, a hint and an exit status. Everything printed goes through a [Safe] writer, and errors and log lines through
// [Redact]; a command has to do neither by itself.
package output

import (
	"errors"
	"fmt"
	"strings"
)

// Code classes an error; it picks the exit status (the command line's contract, section 1).
type Code string

// The classes of errors.
const (
	CodeFailed      Code = "failed"
	CodeUsage       Code = "usage"
	CodeNegative    Code = "negative"
	CodeNotFound    Code = "not_found"
	CodeUnreachable Code = "unreachable"
	CodeInterrupted Code = "interrupted"
)

// Exit returns the process exit status of the class.
func (c Code) Exit() int {
	switch c {
	case CodeUsage:
		return 2
	case CodeNegative, CodeNotFound:
		return 3
	case CodeUnreachable:
		return 4
	case CodeInterrupted:
		return 130
	case CodeFailed:
	}
	return 1
}

// Error is an error with its class and how to fix it. Silent ones were reported already, as data.
type Error struct {
	Code   Code
	Err    error
	Hint   string
	Silent bool
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// WithHint adds how to fix it.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// Usage makes an error of usage or configuration (exit 2): the message names the flag or key.
func Usage(format string, args ...any) *Error { return newError(CodeUsage, format, args) }

// Failed makes an error of a command that could not do its work (exit 1).
func Failed(format string, args ...any) *Error { return newError(CodeFailed, format, args) }

// Negative makes an error of a check that says no (exit 3).
func Negative(format string, args ...any) *Error { return newError(CodeNegative, format, args) }

// NotFound makes an error of a named thing that does not exist (exit 3).
func NotFound(format string, args ...any) *Error { return newError(CodeNotFound, format, args) }

// Unreachable makes an error of a queue or store that could not be opened (exit 4).
func Unreachable(format string, args ...any) *Error { return newError(CodeUnreachable, format, args) }

func newError(c Code, format string, args []any) *Error {
	return &Error{Code: c, Err: fmt.Errorf(format, args...)}
}

// As classes any error: those without a class have failed. A fix that a library wrote behind "; Try: " becomes the hint.
func As(err error) *Error {
	if e := (*Error)(nil); errors.As(err, &e) {
		if err.Error() == e.Error() {
			return e
		}
		return &Error{Code: e.Code, Err: err, Hint: e.Hint, Silent: e.Silent}
	}
	if text, hint := Split(err); hint != "" {
		return &Error{Code: CodeFailed, Err: &cut{text, err}, Hint: hint}
	}
	return &Error{Code: CodeFailed, Err: err}
}

// Split parts an error's text into what happened and how to fix it: adapters write "…; Try: …".
func Split(err error) (text, hint string) {
	text, hint, _ = strings.Cut(err.Error(), "; Try: ")
	return text, hint
}

// cut is an error without its hint.
type cut struct {
	text string
	err  error
}

func (c *cut) Error() string { return c.text }
func (c *cut) Unwrap() error { return c.err }
