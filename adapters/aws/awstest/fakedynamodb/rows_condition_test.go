package fakedynamodb_test

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

const operators = "developerguide/Expressions.OperatorsAndFunctions.html"

// sample has one attribute of every kind that conditions look at.
func sample() m {
	return with("a", m{
		"n": num("10"), "s": str("hello"), "b": bin("\x01\x02\x03"), "yes": yes(true), "nil": null(), "ss": strs("x", "y"),
		"ns": nums("1", "2"), "l": list(num("1"), str("two")), "doc": doc(m{"in": doc(m{"n": num("7")}), "l": list(str("q"))}),
	})
}

// when is a write of nothing under a condition.
func when(expr string, values m) *ddb.UpdateItemInput {
	return &ddb.UpdateItemInput{
		TableName: rows, Key: key("a"), ConditionExpression: aws.String(expr), UpdateExpression: aws.String("REMOVE nothing"),
		ExpressionAttributeValues: values,
	}
}

// condition is a condition on the sample, and whether it holds.
type condition struct {
	name, expr string
	values     m
	holds      bool
}

func conditions() []condition {
	return []condition{
		{"equal", "n = :v", m{":v": num("10.0")}, true},
		{"numbers are compared by value", "n > :v", m{":v": num("9")}, true},
		{"exponent", "n = :v", m{":v": num("1e1")}, true},
		{"other type is not equal", "n = :v", m{":v": str("10")}, false},
		{"other type is unequal", "n <> :v", m{":v": str("10")}, true},
		{"other type has no order", "s > :v", m{":v": num("1")}, false},
		{"missing attribute equals nothing", "nope = :v", m{":v": num("1")}, false},
		{"missing attribute is unequal", "nope <> :v", m{":v": num("1")}, true},
		{"missing attribute has no order", "nope < :v", m{":v": num("1")}, false},
		{"between", "n BETWEEN :a AND :b", m{":a": num("10"), ":b": num("11")}, true},
		{"not between", "n BETWEEN :a AND :b", m{":a": num("11"), ":b": num("12")}, false},
		{"in", "s IN (:a, :b)", m{":a": str("x"), ":b": str("hello")}, true},
		{"not in", "s IN (:a)", m{":a": str("x")}, false},
		{"AND binds before OR", "n = :ten OR n = :ten AND n = :one", m{":ten": num("10"), ":one": num("1")}, true},
		{"parentheses", "(n = :ten OR n = :ten) AND n = :one", m{":ten": num("10"), ":one": num("1")}, false},
		{"groups in a group", "((n = :ten) AND (NOT (n = :one)))", m{":ten": num("10"), ":one": num("1")}, true},
		{"an operand in parentheses", "n = (:ten)", m{":ten": num("10")}, true},
		{"an operand twice", ":ten = :ten AND n > (:one)", m{":ten": num("10"), ":one": num("1")}, true},
		{"299 operators", "n = :ten" + strings.Repeat(" OR n=:ten", 149), m{":ten": num("10")}, true},
		{"NOT binds before AND", "NOT n = :one AND n = :ten", m{":ten": num("10"), ":one": num("1")}, true},
		{"keywords in any case", "not n = :one and n = :ten", m{":ten": num("10"), ":one": num("1")}, true},
		{"exists", "attribute_exists(doc.#in.n)", nil, true},
		{"exists in list", "attribute_exists(l[1])", nil, true},
		{"not exists behind the list", "attribute_not_exists(l[2])", nil, true},
		{"not exists under a number", "attribute_not_exists(n.x)", nil, true},
		{"type", "attribute_type(ss, :t)", m{":t": str("SS")}, true},
		{"other type", "attribute_type(ss, :t)", m{":t": str("L")}, false},
		{"begins", "begins_with(s, :v)", m{":v": str("he")}, true},
		{"begins not", "begins_with(s, :v)", m{":v": str("e")}, false},
		{"bytes begin with no text", "begins_with(b, :v)", m{":v": str("\x01")}, false},
		{"number begins with nothing", "begins_with(n, :v)", m{":v": str("1")}, false},
		{"contains text", "contains(s, :v)", m{":v": str("ell")}, true},
		{"contains in set", "contains(ss, :v)", m{":v": str("y")}, true},
		{"contains number in set", "contains(ns, :v)", m{":v": num("2")}, true},
		{"contains other type in set", "contains(ns, :v)", m{":v": str("2")}, false},
		{"contains in list", "contains(l, :v)", m{":v": str("two")}, true},
		{"contains not in map", "contains(doc, :v)", m{":v": str("in")}, false},
		{"size of text", "size(s) = :v", m{":v": num("5")}, true},
		{"size of bytes", "size(b) = :v", m{":v": num("3")}, true},
		{"size of list", "size(l) = :v", m{":v": num("2")}, true},
		{"size of set", "size(ss) > :v", m{":v": num("1")}, true},
		{"size of map", "size(doc) = :v", m{":v": num("2")}, true},
		{"path in list in map", "doc.l[0] = :v", m{":v": str("q")}, true},
		{"sets have no order", "ss = :v", m{":v": strs("y", "x")}, true},
		{"lists have one", "l = :v", m{":v": list(str("two"), num("1"))}, false},
		{"two attributes", "doc.#in.n < n", nil, true},
		{"bytes by order", "b < :v", m{":v": bin("\x01\x03")}, true},
		{"bool", "yes = :v", m{":v": yes(true)}, true},
		{"null", "nil = :v", m{":v": null()}, true},
	}
}

func conditionRows() []row {
	out := []row{}
	for _, c := range conditions() {
		in := when(c.expr, c.values)
		if c.name == "exists" || c.name == "two attributes" {
			in.ExpressionAttributeNames = map[string]string{"#in": "in"}
		}
		want := "ok"
		if !c.holds {
			want = "ConditionalCheckFailedException"
		}
		out = append(out, row{name: "condition/" + c.name, source: operators, steps: []call{put(sample()), {in: in, want: want}}})
	}
	return append(out, failureRows()...)
}

func failureRows() []row {
	first := &ddb.PutItemInput{
		TableName: rows, Item: with("a", m{"v": num("2")}), ConditionExpression: aws.String("attribute_not_exists(pk)"),
		ReturnValuesOnConditionCheckFailure: "ALL_OLD",
	}
	quiet := *first
	quiet.ReturnValuesOnConditionCheckFailure = ""
	return []row{
		{
			name: "failed put returns the item when asked", source: "APIReference/API_PutItem.html",
			steps: []call{
				{in: first, want: "ok"},
				{in: first, want: "ConditionalCheckFailedException {sk:'a' v:2}", says: "The conditional request failed"},
				{in: &quiet, want: "ConditionalCheckFailedException"},
			},
		},
		{
			name: "failed update on nothing returns no item", source: "APIReference/API_UpdateItem.html",
			steps: []call{{
				in: &ddb.UpdateItemInput{
					TableName: rows, Key: key("a"), ConditionExpression: aws.String("attribute_exists(pk)"),
					UpdateExpression:                    aws.String("REMOVE v"),
					ReturnValuesOnConditionCheckFailure: "ALL_OLD",
				}, want: "ConditionalCheckFailedException",
			}, {in: get("a"), want: "none"}},
		},
		{
			name: "failed delete", source: "APIReference/API_DeleteItem.html",
			steps: []call{
				put(with("a", m{"v": num("1")})),
				{in: &ddb.DeleteItemInput{
					TableName: rows, Key: key("a"), ConditionExpression: aws.String("v = :v"),
					ExpressionAttributeValues:           m{":v": num("2")},
					ReturnValuesOnConditionCheckFailure: "ALL_OLD",
				}, want: "ConditionalCheckFailedException {sk:'a' v:1}"},
				{in: &ddb.DeleteItemInput{TableName: rows, Key: key("a"), ReturnValues: "ALL_OLD"}, want: "{sk:'a' v:1}"},
				{in: &ddb.DeleteItemInput{TableName: rows, Key: key("a"), ReturnValues: "ALL_OLD"}, want: "ok"},
			},
		},
	}
}
