package fakesfn_test

import (
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sfn/types"

	"github.com/semel-dev/semel/adapters/aws/awstest/fakesfn"
)

const (
	express  = types.StateMachineTypeExpress
	startDoc = "StartExecution.html"
)

var rows = []row{
	{
		name: "same name and input while it runs", source: startDoc,
		steps: func(w *fixture) {
			w.machine("")
			a, b := w.start("n", `{"a":1}`), w.start("n", `{"a":1}`)
			w.say("%t", a == b && a != "")
			w.list("", 0)
		}, want: "ok ok true n",
	},
	{
		name: "same name, another input, while it runs", source: startDoc,
		steps: func(w *fixture) {
			w.machine("")
			w.start("n", `{"a":1}`)
			w.start("n", `{"a":2}`)
		}, want: "ok ExecutionAlreadyExists",
	},
	{
		name: "the same JSON in other bytes is another input", source: "not recorded: the reference says same input; byte for byte is the safe reading",
		steps: func(w *fixture) {
			w.machine("")
			w.start("n", `{"a":1}`)
			w.start("n", `{"a": 1}`)
		}, want: "ok ExecutionAlreadyExists",
	},
	{
		name: "same name and input when it was stopped", source: startDoc,
		steps: func(w *fixture) {
			w.machine("")
			w.stop(w.start("n", `{}`))
			w.start("n", `{}`)
		}, want: "ok ok ExecutionAlreadyExists",
	},
	{
		name: "same name and input when it succeeded", source: startDoc, own: true,
		steps: func(w *fixture) {
			w.machine("")
			a := w.start("n", `{}`)
			w.finish(a, fakesfn.Succeeded)
			w.start("n", `{}`)
			w.describe(a)
		}, want: "ok ExecutionAlreadyExists SUCCEEDED {}",
	},
	{
		name: "a name is free 90 days after the end", source: startDoc, own: true,
		steps: func(w *fixture) {
			w.machine("")
			a := w.start("n", `{}`)
			w.clock.Advance(30 * 24 * time.Hour)
			w.finish(a, fakesfn.Failed)
			w.clock.Advance(fakesfn.NameKept - time.Second)
			w.start("n", `{}`)
			w.clock.Advance(time.Second)
			w.describe(a)
			w.start("n", `{}`)
		}, want: "ok ExecutionAlreadyExists ExecutionDoesNotExist ok",
	},
	{
		name: "a name is not free while it runs", source: startDoc, own: true,
		steps: func(w *fixture) {
			w.machine("")
			w.start("n", `{}`)
			w.clock.Advance(2 * fakesfn.NameKept)
			w.start("n", `{"a":1}`)
		}, want: "ok ExecutionAlreadyExists",
	},
	{
		name: "names are of a machine", source: startDoc + " (unique for account, Region and state machine)",
		steps: func(w *fixture) {
			w.machine("")
			a := w.start("n", `{}`)
			w.machine("", "2")
			b := w.start("n", `{}`)
			w.say("%t", a != b)
		}, want: "ok ok true",
	},
	{
		name: "names tell case apart", source: "not recorded: names are compared as they are written",
		steps: func(w *fixture) {
			w.machine("")
			a, b := w.start("n", `{}`), w.start("N", `{}`)
			w.say("%t", a != b)
		}, want: "ok ok true",
	},
	{
		name: "no name", source: startDoc + " (a UUID)",
		steps: func(w *fixture) {
			w.machine("")
			a, b := w.start("", `{}`), w.start("", `{}`)
			w.say("%t", a != b)
		}, want: "ok ok true",
	},
	{
		name: "80 characters", source: startDoc + " (Maximum length of 80); not recorded: the code",
		steps: func(w *fixture) {
			w.machine("")
			w.start(strings.Repeat("n", 80), `{}`)
			w.start(strings.Repeat("n", 81), `{}`)
		}, want: "ok ValidationException",
	},
	{
		name: "characters that a name must not have", source: startDoc,
		steps: func(w *fixture) {
			w.machine("")
			for _, bad := range strings.Split(`a b,<,>,{,},[,],?,*,",#,%,\,^,|,~,$,&,;,:,/`, ",") {
				w.start(bad, `{}`)
			}
			w.start("a,b", `{}`)
			w.start("a`b", `{}`)
			w.start("a\tb", `{}`)
		}, want: strings.TrimSpace(strings.Repeat("InvalidName ", 24)),
	},
	{
		name: "characters of other languages", source: startDoc + " (only those listed are forbidden)",
		steps: func(w *fixture) {
			w.machine("")
			w.start("auftrag-größe_1.2", `{}`)
		}, want: "ok",
	},
	{
		name: "input that is no JSON", source: startDoc,
		steps: func(w *fixture) {
			w.machine("")
			w.start("n", `{"a":`)
		}, want: "InvalidExecutionInput",
	},
	{
		name: "input of 256 KiB", source: "../dg/service-quotas.html; not recorded: the code",
		steps: func(w *fixture) {
			w.machine("")
			w.start("a", `"`+strings.Repeat("x", 256<<10-2)+`"`)
			w.start("b", `"`+strings.Repeat("x", 256<<10-1)+`"`)
		}, want: "ok ValidationException", moto: "it takes any length",
	},
	{
		name: "no such machine", source: startDoc,
		steps: func(w *fixture) {
			w.machine("")
			w.arn = aws.String(*w.arn + "x")
			w.start("n", `{}`)
			w.arn = aws.String("arn:aws:states")
			w.start("n", `{}`)
		}, want: "StateMachineDoesNotExist InvalidArn",
	},
	{
		name: "an ARN with a version or an alias", source: startDoc, own: true,
		steps: func(w *fixture) {
			w.machine("")
			a := w.start("n", `{}`)
			w.arn = aws.String(*w.arn + ":PROD")
			w.say("%t", a == w.start("n", `{}`))
		}, want: "ok ok true",
	},
	{
		name: "EXPRESS machines start each time", source: startDoc,
		steps: func(w *fixture) {
			w.machine(express)
			a, b := w.start("n", `{}`), w.start("n", `{}`)
			w.say("%t %t", a != b, strings.Contains(a, ":express:"))
		}, want: "ok ok true true", moto: "it has no EXPRESS machines: all are STANDARD",
	},
	{
		name: "EXPRESS executions cannot be asked for", source: "DescribeExecution.html, ListExecutions.html; not recorded: the code",
		steps: func(w *fixture) {
			w.machine(express)
			w.describe(w.start("n", `{}`))
			w.list("", 0)
		}, want: "ok StateMachineTypeNotSupported StateMachineTypeNotSupported", moto: "it has no EXPRESS machines: all are STANDARD",
	},
	{
		name: "the type of a machine", source: "DescribeStateMachine.html",
		steps: func(w *fixture) {
			for i, kind := range []types.StateMachineType{"", express} {
				w.machine(kind, []string{"a", "b"}[i])
				out, err := w.c.DescribeStateMachine(w.Context(), &sfn.DescribeStateMachineInput{StateMachineArn: w.arn})
				if err != nil {
					w.say("%s", code(err))
					continue
				}
				w.say("%s", out.Type)
			}
		}, want: "STANDARD EXPRESS", moto: "it has no EXPRESS machines: all are STANDARD",
	},
	{
		name: "describe", source: "DescribeExecution.html",
		steps: func(w *fixture) {
			w.machine("")
			a := w.start("n", `{"a": 1}`)
			w.describe(a)
			w.describe(a + "x")
			w.describe("n")
		}, want: `ok RUNNING {"a": 1} ExecutionDoesNotExist InvalidArn`,
	},
	{
		name: "stop", source: "StopExecution.html",
		steps: func(w *fixture) {
			w.machine("")
			a := w.start("n", `{}`)
			w.stop(a)
			w.describe(a)
			w.stop(a + "x")
		}, want: "ok ok ABORTED {} ExecutionDoesNotExist",
	},
	{
		name: "list", source: "ListExecutions.html (newest first)", own: true,
		steps: func(w *fixture) {
			w.machine("")
			for _, n := range []string{"a", "b", "c"} {
				w.start(n, `{}`)
				w.clock.Advance(time.Second)
			}
			w.list("", 0)
			w.list("", 2)
			w.list(types.ExecutionStatusSucceeded, 0)
		}, want: "ok ok ok c+b+a c+b a -",
	},
	{
		name: "create again", source: "CreateStateMachine.html (idempotent over name, definition and type)",
		steps: func(w *fixture) {
			w.machine("")
			a := *w.arn
			w.machine("")
			w.say("%t", a == *w.arn)
			w.machine(express)
		}, want: "true StateMachineAlreadyExists", moto: "it has no EXPRESS machines: all are STANDARD",
	},
	{
		name: "delete", source: "DeleteStateMachine.html",
		steps: func(w *fixture) {
			w.machine("")
			for range 2 {
				_, err := w.c.DeleteStateMachine(w.Context(), &sfn.DeleteStateMachineInput{StateMachineArn: w.arn})
				w.say("%s", code(err))
			}
			w.start("n", `{}`)
		}, want: "ok ok StateMachineDoesNotExist",
	},
}
