package fakesfn

import (
	"context"
	"fmt"

	"github.com/semel-dev/semel/adapters/aws/awstest/internal/awsjson"
)

// The errors are those of the API reference ("Errors" of every action). All have status 400.
//
// https://docs.aws.amazon.com/step-functions/latest/apireference/CommonErrors.html

func modelled(shape, format string, args ...any) error {
	return &awsjson.Error{Type: "com.amazonaws.swf.service.v2.model#" + shape, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return &awsjson.Error{Type: "com.amazon.coral.validate#ValidationException", Message: fmt.Sprintf(format, args...)}
}

func invalidArn(arn string) error { return modelled("InvalidArn", "Invalid Arn: '%s'", arn) }

func invalidName(name string) error { return modelled("InvalidName", "Invalid Name: '%s'", name) }

func noMachine(arn string) error {
	return modelled("StateMachineDoesNotExist", "State Machine Does Not Exist: '%s'", arn)
}

func noExecution(arn string) error {
	return modelled("ExecutionDoesNotExist", "Execution Does Not Exist: '%s'", arn)
}

func notForExpress(operation string) error {
	return modelled("StateMachineTypeNotSupported", "%s is not supported for executions of EXPRESS state machines", operation)
}

// deny is what a caller without permission gets.
func deny(context.Context, []byte) (any, error) {
	return nil, &awsjson.Error{
		Type:    "com.amazon.coral.service#AccessDeniedException",
		Message: "User is not authorized to perform this operation because no identity-based policy allows it",
	}
}
