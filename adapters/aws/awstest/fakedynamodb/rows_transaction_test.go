package fakedynamodb_test

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

const transactions = "developerguide/transaction-apis.html"

func together(items ...types.TransactWriteItem) *ddb.TransactWriteItemsInput {
	return &ddb.TransactWriteItemsInput{TransactItems: items}
}

func txPut(it m, condition string) types.TransactWriteItem {
	p := &types.Put{TableName: rows, Item: it, ReturnValuesOnConditionCheckFailure: "ALL_OLD"}
	if condition != "" {
		p.ConditionExpression = &condition
	}
	return types.TransactWriteItem{Put: p}
}

func txUpdate(sk, expr string, values m) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{TableName: rows, Key: key(sk), UpdateExpression: &expr,
		ExpressionAttributeValues: values}}
}

func txCheck(sk, condition string) types.TransactWriteItem {
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: rows, Key: key(sk),
		ConditionExpression: &condition}}
}

func transactionRows() []row {
	const fresh = "attribute_not_exists(pk)"
	v := m{":v": num("1")}
	token := func(in *ddb.TransactWriteItemsInput) *ddb.TransactWriteItemsInput {
		in.ClientRequestToken = aws.String("token-1")
		return in
	}
	gone := types.TransactWriteItem{Delete: &types.Delete{TableName: rows, Key: key("a")}}
	var many []types.TransactWriteItem
	for i := range 101 {
		many = append(many, txPut(key(strings.Repeat("x", i+1)), ""))
	}
	tx := func(name, source string, steps ...call) row {
		return row{name: "transaction/" + name, source: source, steps: steps}
	}
	const api = "APIReference/API_TransactWriteItems.html"
	return []row{
		tx("all", transactions,
			put(key("a")), call{in: together(gone, txPut(key("b"), fresh), txUpdate("c", "ADD n :v", v), txCheck("d",
				fresh)), want: "ok"},
			call{in: get("a"), want: "none"}, call{in: get("b"), want: "{sk:'b'}"}, call{in: get("c"), want: "{n:1 sk:'c'}"},
			call{in: get("d"), want: "none"}),
		tx("or nothing, with reasons by position", transactions,
			put(with("b", m{"n": num("7")})),
			call{
				in:   together(txPut(key("a"), ""), txPut(key("b"), fresh), txCheck("c", fresh)),
				want: "TransactionCanceledException None ConditionalCheckFailed{n:7 sk:'b'} None",
				says: "Transaction cancelled, please refer cancellation reasons for specific reasons [None, ConditionalCheckFailed, None]",
			},
			call{in: get("a"), want: "none"}),
		tx("an update that cannot be", api,
			put(with("b", m{"n": str("text")})),
			call{in: together(txPut(key("a"), ""), txUpdate("b", "ADD n :v", v)),
				want: "TransactionCanceledException None ValidationError"},
			call{in: get("a"), want: "none"}),
		tx("one item twice", api,
			call{in: together(txPut(key("a"), ""), gone), want: "ValidationException",
				says: "Transaction request cannot include multiple operations on one item"}),
		tx("101 actions", api, call{in: together(many...), want: "ValidationException",
			says: "Member must have length less than or equal to 100"}),
		tx("100 actions", api, call{in: together(many[:100]...), want: "ok"}),
		tx("token", api,
			call{in: token(together(txUpdate("a", "ADD n :v", v))), want: "ok"},
			call{in: token(together(txUpdate("a", "ADD n :v", v))), want: "ok"},
			call{in: get("a"), want: "{n:1 sk:'a'}"},
			call{in: token(together(txUpdate("a", "ADD n :v", m{":v": num("2")}))), want: "IdempotentParameterMismatchException"},
			call{in: together(txUpdate("a", "ADD n :v", v)), want: "ok"},
			call{in: get("a"), want: "{n:2 sk:'a'}"}),
		tx("get", "APIReference/API_TransactGetItems.html",
			put(with("a", m{"n": num("1")})),
			call{in: &ddb.TransactGetItemsInput{TransactItems: []types.TransactGetItem{
				{Get: &types.Get{TableName: rows, Key: key("a"), ProjectionExpression: aws.String("n")}},
				{Get: &types.Get{TableName: rows, Key: key("b")}},
			}}, want: "{n:1} none"}),
	}
}

func capacityRows() []row {
	const units = "developerguide/read-write-operations.html"
	sized := func(n int) m { return with("a", m{"s": str(strings.Repeat("x", n-7))}) } // names 2+2+1, keys 1+1
	write := func(it m) *ddb.PutItemInput {
		return &ddb.PutItemInput{TableName: rows, Item: it, ReturnConsumedCapacity: "TOTAL"}
	}
	read := func(consistent bool) *ddb.GetItemInput {
		return &ddb.GetItemInput{
			TableName: rows, Key: key("a"), ConsistentRead: &consistent, ReturnConsumedCapacity: "TOTAL",
			ProjectionExpression: aws.String("sk"),
		}
	}
	tx := together(txPut(sized(1500), ""))
	tx.ReturnConsumedCapacity = "TOTAL"
	txRead := &ddb.TransactGetItemsInput{ReturnConsumedCapacity: "TOTAL", TransactItems: []types.TransactGetItem{
		{Get: &types.Get{TableName: rows, Key: key("a"), ProjectionExpression: aws.String("sk")}},
	}}
	gone := &ddb.DeleteItemInput{TableName: rows, Key: key("a"), ReturnConsumedCapacity: "TOTAL"}
	one := func(name string, steps ...call) row {
		return row{name: "capacity/" + name, source: units, steps: steps}
	}
	return []row{
		one("write of a KB", call{in: write(sized(1024)), want: "ok units=1"}),
		one("write of a KB and a byte", call{in: write(sized(1025)), want: "ok units=2"}),
		one("larger of before and after", call{in: write(sized(3000)), want: "ok units=3"}, call{in: write(sized(100)),
			want: "ok units=3"},
			call{in: write(sized(100)), want: "ok units=1"}),
		one("delete", call{in: write(sized(3000)), want: "ok units=3"}, call{in: gone, want: "ok units=3"}, call{in: gone,
			want: "ok units=1"}),
		one("read of 4 KB", call{in: write(sized(4096)), want: "ok units=4"}, call{in: read(true), want: "{sk:'a'} units=1"},
			call{in: read(false), want: "{sk:'a'} units=0.5"}),
		one("read of 4 KB and a byte", call{in: write(sized(4097)), want: "ok units=5"}, call{in: read(true),
			want: "{sk:'a'} units=2"}, call{in: read(false), want: "{sk:'a'} units=1"}),
		one("read of nothing", call{in: read(true), want: "none units=1"}, call{in: read(false), want: "none units=0.5"}),
		one("transactions cost twice", call{in: tx, want: "ok units=4"}, call{in: txRead, want: "{sk:'a'} units=2"}),
		one("query by the sum of sizes", put(with("a", m{"s": str(strings.Repeat("x", 3000))})), put(with("b",
			m{"s": str(strings.Repeat("x", 3000))})),
			call{in: query("pk = :p", nil, func(in *ddb.QueryInput) { in.ReturnConsumedCapacity = "TOTAL" }),
				want: "[{sk:'a'} {sk:'b'}] count=2/2 units=2"}),
	}
}
