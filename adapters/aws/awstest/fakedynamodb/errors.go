package fakedynamodb

import (
	"errors"
	"fmt"

	"github.com/semel-dev/semel/adapters/aws/awstest/internal/awsjson"
)

const namespace = "com.amazonaws.dynamodb.v20120810#"

// invalid is the service's ValidationException.
func invalid(format string, args ...any) error {
	return &awsjson.Error{Type: "com.amazon.coral.validate#ValidationException", Message: fmt.Sprintf(format, args...)}
}

func serialization(format string, args ...any) error {
	return &awsjson.Error{Type: "com.amazon.coral.service#SerializationException", Message: fmt.Sprintf(format, args...)}
}

// fault is another error of the service.
func fault(shape, format string, args ...any) error {
	return &awsjson.Error{Type: namespace + shape, Message: fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) error {
	return fault("ResourceNotFoundException", format, args...)
}

func conditionFailed(old item, show bool) error {
	e := &awsjson.Error{Type: namespace + "ConditionalCheckFailedException", Message: "The conditional request failed"}
	if show && old != nil {
		e.Fields = map[string]any{"Item": old}
	}
	return e
}

// runtimeError is a validation that fails against the item and not for the request alone: in a transaction it cancels.
type runtimeError struct{ err error }

func (e *runtimeError) Error() string { return e.err.Error() }
func (e *runtimeError) Unwrap() error { return e.err }

func atRun(format string, args ...any) error { return &runtimeError{err: invalid(format, args...)} }

// asRun marks an error as one of running.
func asRun(err error) error {
	if err == nil {
		return nil
	}
	return &runtimeError{err: err}
}

func messageOf(err error) string {
	if e := (*awsjson.Error)(nil); errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}
