package fakedynamodb_test

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

const queries = "developerguide/Query.html"

// five are items a to e with the numbers 1 to 5.
func five() []call {
	out := []call{}
	for i, sk := range []string{"c", "a", "e", "b", "d"} {
		_ = i
		out = append(out, put(with(sk, m{"n": num(string('1' + sk[0] - 'a')), "x": str(sk)})))
	}
	return out
}

func query(keys string, values m, change func(*ddb.QueryInput)) *ddb.QueryInput {
	if values == nil {
		values = m{}
	}
	values[":p"] = str("p")
	in := &ddb.QueryInput{
		TableName: rows, KeyConditionExpression: aws.String(keys), ExpressionAttributeValues: values,
		ConsistentRead:       aws.Bool(true),
		ProjectionExpression: aws.String("sk"),
	}
	if change != nil {
		change(in)
	}
	return in
}

func pageRows() []row {
	one := func(name string, in any, want string) row {
		return row{name: "page/" + name, source: queries, steps: append(five(), call{in: in, want: want})}
	}
	bad := func(name string, in any, says string) row {
		return row{name: "page/" + name, source: queries, steps: []call{{in: in, want: "ValidationException", says: says}}}
	}
	backward := func(in *ddb.QueryInput) { in.ScanIndexForward = aws.Bool(false) }
	return []row{
		one("in order", query("pk = :p", nil, nil), "[{sk:'a'} {sk:'b'} {sk:'c'} {sk:'d'} {sk:'e'}] count=5/5"),
		one("backward", query("pk = :p", nil, backward), "[{sk:'e'} {sk:'d'} {sk:'c'} {sk:'b'} {sk:'a'}] count=5/5"),
		one("other partition", query("pk = :q AND sk = :p", m{":q": str("q")}, nil), "[] count=0/0"),
		one("sort key", query("pk = :p AND sk > :s", m{":s": str("c")}, nil), "[{sk:'d'} {sk:'e'}] count=2/2"),
		one("either order", query("sk <= :s AND pk = :p", m{":s": str("b")}, nil), "[{sk:'a'} {sk:'b'}] count=2/2"),
		one("between", query("pk = :p AND sk BETWEEN :s AND :t", m{":s": str("b"), ":t": str("c")}, nil),
			"[{sk:'b'} {sk:'c'}] count=2/2"),
		one("begins with", query("pk = :p AND begins_with(sk, :s)", m{":s": str("d")}, nil), "[{sk:'d'}] count=1/1"),
		one("filter after reading", query("pk = :p", m{":n": num("4")},
			func(in *ddb.QueryInput) { in.FilterExpression = aws.String("n >= :n") }),
			"[{sk:'d'} {sk:'e'}] count=2/5"),
		one("limit", query("pk = :p", nil, func(in *ddb.QueryInput) { in.Limit = aws.Int32(2) }),
			"[{sk:'a'} {sk:'b'}] count=2/2 last={sk:'b'}"),
		one("limit counts before the filter", query("pk = :p", m{":n": num("2")}, func(in *ddb.QueryInput) {
			in.Limit, in.FilterExpression = aws.Int32(2), aws.String("n = :n")
		}), "[{sk:'b'}] count=1/2 last={sk:'b'}"),
		one("next page", query("pk = :p", nil, func(in *ddb.QueryInput) { in.ExclusiveStartKey = key("c") }),
			"[{sk:'d'} {sk:'e'}] count=2/2"),
		one("next page backward", query("pk = :p", nil, func(in *ddb.QueryInput) {
			backward(in)
			in.ExclusiveStartKey, in.Limit = key("c"), aws.Int32(1)
		}), "[{sk:'b'}] count=1/1 last={sk:'b'}"),
		one("start at what is gone", query("pk = :p", nil, func(in *ddb.QueryInput) { in.ExclusiveStartKey = key("cc") }),
			"[{sk:'d'} {sk:'e'}] count=2/2"),
		one("count", query("pk = :p", nil, func(in *ddb.QueryInput) {
			in.Select, in.ProjectionExpression = types.SelectCount,
				nil
		}), "[] count=5/5"),
		one("scan", &ddb.ScanInput{
			TableName: rows, ConsistentRead: aws.Bool(true), FilterExpression: aws.String("n < :n"),
			ExpressionAttributeValues: m{":n": num("3")},
			ProjectionExpression:      aws.String("x"),
		}, "[{x:'a'} {x:'b'}] count=2/5"),
		one("scan with limit", &ddb.ScanInput{TableName: rows, Limit: aws.Int32(1), ConsistentRead: aws.Bool(true)},
			"[{n:1 sk:'a' x:'a'}] count=1/1 last={sk:'a'}"),
		bad("without partition key", query("sk = :p", nil, nil), "Query condition missed key schema element: pk"),
		bad("unordered partition key", query("pk > :p", nil, nil), "Query key condition not supported"),
		bad("or", query("pk = :p OR sk = :p", nil, nil), ""),
		bad("two conditions", query("pk = :p AND pk = :q", m{":q": str("q")}, nil),
			"KeyConditionExpressions must only contain one condition per key"),
		bad("key in filter", query("pk = :p", nil, func(in *ddb.QueryInput) { in.FilterExpression = aws.String("sk = :p") }),
			"Filter Expression can only contain non-primary key attributes: Primary key attribute: sk"),
		bad("type of the key", query("pk = :n AND sk = :p", m{":n": num("1")}, nil),
			"Condition parameter type does not match schema type"),
		bad("segment", &ddb.ScanInput{TableName: rows, Segment: aws.Int32(2), TotalSegments: aws.Int32(2)},
			"The Segment parameter is zero-based and must be less than parameter TotalSegments: Segment: 2 is not less than TotalSegments: 2"),
		bad("start outside", query("pk = :p AND sk > :s", m{":s": str("c")},
			func(in *ddb.QueryInput) { in.ExclusiveStartKey = key("a") }),
			"The provided starting key is outside query boundaries based on provided conditions"),
		batchRow(), projectionRow(), megabyteRow(),
	}
}

func projectionRow() row {
	in := get("a")
	in.ProjectionExpression, in.ExpressionAttributeNames = aws.String("#d.#in.n, l[1], nope"), map[string]string{"#d": "doc",
		"#in": "in"}
	over := get("a")
	over.ProjectionExpression = aws.String("l, l[1]")
	return row{name: "page/projection", source: "developerguide/Expressions.ProjectionExpressions.html", steps: []call{
		put(sample()), {in: in, want: "{doc:{in:{n:7}} l:['two']}"},
		{in: over, want: "ValidationException", says: "Two document paths overlap with each other"},
	}}
}

func batchRow() row {
	keys := func(k ...string) *ddb.BatchGetItemInput {
		in := types.KeysAndAttributes{ConsistentRead: aws.Bool(true)}
		for _, k := range k {
			in.Keys = append(in.Keys, key(k))
		}
		return &ddb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"rows": in}}
	}
	var puts []types.WriteRequest
	for range 26 {
		puts = append(puts, types.WriteRequest{PutRequest: &types.PutRequest{Item: key("k" + string('a'+byte(len(puts))))}})
	}
	write := func(w []types.WriteRequest) *ddb.BatchWriteItemInput {
		return &ddb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"rows": w}}
	}
	return row{name: "page/batches", source: "APIReference/API_BatchGetItem.html", steps: []call{
		put(key("a")), put(key("b")), {in: keys("a", "b", "c"), want: "[{sk:'a'} {sk:'b'}] left=0"},
		{in: keys("a", "a"), want: "ValidationException", says: "Provided list of item keys contains duplicates"},
		{in: write(puts), want: "ValidationException", says: "Too many items requested for the BatchWriteItem call"},
		{in: write([]types.WriteRequest{puts[0], puts[0]}), want: "ValidationException",
			says: "Provided list of item keys contains duplicates"},
		{in: write([]types.WriteRequest{puts[0], {DeleteRequest: &types.DeleteRequest{Key: key("a")}}}), want: "ok left=0"},
		{in: keys("a", "b", "ka"), want: "[{sk:'b'} {sk:'ka'}] left=0"},
	}}
}

// megabyteRow reads four items of 350 KB: two fit into the megabyte of a page.
func megabyteRow() row {
	steps := []call{}
	for _, sk := range []string{"a", "b", "c", "d"} {
		steps = append(steps, put(with(sk, m{"big": str(strings.Repeat("x", 350<<10))})))
	}
	next := func(in *ddb.QueryInput) { in.ExclusiveStartKey = key("b") }
	return row{name: "page/megabyte", source: queries, steps: append(steps,
		call{in: query("pk = :p", nil, nil), want: "[{sk:'a'} {sk:'b'}] count=2/2 last={sk:'b'}"},
		call{in: query("pk = :p", nil, next), want: "[{sk:'c'} {sk:'d'}] count=2/2"},
	)}
}
