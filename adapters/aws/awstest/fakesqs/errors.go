package fakesqs

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/semel-dev/semel/adapters/aws/awstest/internal/awsjson"
)

// The errors are those of the API reference ("Errors" of every action) with the codes that clients of the older query
// protocol know, which the service sends in the header x-amzn-query-error.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/CommonErrors.html

// modelled is an error that the API has a shape for; code is its name in the query protocol.
func modelled(shape, code, format string, args ...any) error {
	return &awsjson.Error{Type: "com.amazonaws.sqs#" + shape, Message: fmt.Sprintf(format, args...), Query: code + ";Sender"}
}

const legacy = "AWS.SimpleQueueService."

// invalidValue is a parameter out of its range, or one that does not fit the queue.
func invalidValue(format string, args ...any) error {
	return &awsjson.Error{
		Type: "com.amazon.coral.service#InvalidParameterValueException", Message: fmt.Sprintf(format, args...),
		Query: "InvalidParameterValue;Sender",
	}
}

// invalid is invalidValue with the service's usual words.
func invalid(parameter string, value any, reason string) error {
	return invalidValue("Value %v for parameter %s is invalid. Reason: %s", value, parameter, reason)
}

func missing(parameter string) error {
	return &awsjson.Error{
		Type:    "com.amazon.coral.service#MissingRequiredParameterException",
		Message: fmt.Sprintf("The request must contain the parameter %s.", parameter),
		Query:   "MissingParameter;Sender",
	}
}

func noQueue() error {
	return modelled("QueueDoesNotExist", legacy+"NonExistentQueue", "The specified queue does not exist.")
}

func noAddress(queueURL string) error {
	return &awsjson.Error{
		Status: http.StatusNotFound, Type: "com.amazonaws.sqs#InvalidAddress", Query: "InvalidAddress;Sender",
		Message: fmt.Sprintf("The address %s is not valid for this endpoint.", queueURL),
	}
}

func noSuchHandle(handle string) error {
	return &awsjson.Error{
		Status: http.StatusNotFound, Type: "com.amazonaws.sqs#ReceiptHandleIsInvalid", Query: "ReceiptHandleIsInvalid;Sender",
		Message: fmt.Sprintf("The input receipt handle \"%s\" is not a valid receipt handle.", handle),
	}
}

func unsupported(format string, args ...any) error {
	return modelled("UnsupportedOperation", legacy+"UnsupportedOperation", format, args...)
}

// entryError is one failure of a batch.
type entryError struct {
	ID          string `json:"Id"`
	Code        string `json:"Code"`
	Message     string `json:"Message"`
	SenderFault bool   `json:"SenderFault"`
}

// failed makes the entry of an error in a batch.
func failed(id string, err error) entryError {
	var e *awsjson.Error
	if !errors.As(err, &e) {
		return entryError{ID: id, Code: "InternalFailure", Message: err.Error()}
	}
	code, _, _ := strings.Cut(e.Query, ";")
	return entryError{ID: id, Code: code, Message: e.Message, SenderFault: true}
}
