package fakedynamodb_test

import (
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// refusedRows are requests that are refused before anything is looked at.
func refusedRows() []row {
	const names, words = "developerguide/Expressions.ExpressionAttributeNames.html", "developerguide/ReservedWords.html"
	one := func(name, source string, in any, says string) row {
		return row{name: "refused/" + name, source: source, steps: []call{{in: in, want: "ValidationException", says: says}}}
	}
	v := m{":v": num("1")}
	out := []row{}
	for _, word := range []string{"owner", "status", "name", "ttl", "state", "key", "timestamp", "Date", "TOKEN", "value",
		"data", "count"} {
		out = append(out, one("reserved word "+word, words, update("SET "+word+" = :v", v),
			"Attribute name is a reserved keyword; reserved keyword: "+word))
	}
	named := when("#n = :v", v)
	named.ExpressionAttributeNames = map[string]string{"#n": "n", "#other": "o"}
	badName := when("#n = :v", v)
	badName.ExpressionAttributeNames = map[string]string{"n": "n"}
	bare := update("SET n = :v", v)
	bare.UpdateExpression = nil
	old := when("n = :v", v)
	old.Expected = map[string]types.ExpectedAttributeValue{"n": {Value: num("1")}}
	return append(out,
		one("reserved word in a condition", words, when("status = :v", v),
			"Invalid ConditionExpression: Attribute name is a reserved keyword; reserved keyword: status"),
		one("reserved word in a path", words, when("n.status = :v", v),
			"Attribute name is a reserved keyword; reserved keyword: status"),
		one("unused value", names, when("n = :v", m{":v": num("1"), ":w": num("2")}),
			"Value provided in ExpressionAttributeValues unused in expressions: keys: {:w}"),
		one("unused name", names, named, "Value provided in ExpressionAttributeNames unused in expressions: keys: {#other}"),
		one("undefined value", names, when("n = :nope", nil),
			"An expression attribute value used in expression is not defined; attribute value: :nope"),
		one("undefined name", names, when("#nope = :v", v),
			"An expression attribute name used in the document path is not defined; attribute name: #nope"),
		one("name without sign", names, badName, "ExpressionAttributeNames contains invalid key: Syntax error; key: \"n\""),
		one("values without expression", names, bare, "ExpressionAttributeValues can only be specified when using expressions"),
		one("empty expression", operators, when("", nil), "Invalid ConditionExpression: The expression can not be empty;"),
		one("syntax", operators, when("n = = :v", v), "Invalid ConditionExpression: Syntax error; token: \"=\""),
		one("leading underscore", operators, when("_n = :v", v), "Syntax error"),
		one("unknown function", operators, when("exists(n)", nil), "Invalid function name; function: exists"),
		one("functions have lower case", operators, when("Attribute_Exists(n)", nil),
			"Invalid function name; function: Attribute_Exists"),
		one("number of arguments", operators, when("begins_with(n)", nil),
			"Incorrect number of operands for operator or function; operator or function: begins_with, number of operands: 1"),
		one("size alone", operators, when("size(n)", nil), "Syntax error"),
		one("function as a value", operators, when("n = attribute_exists(n)", nil),
			"The function is not allowed to be used this way in an expression; function: attribute_exists"),
		one("order of bools", operators, when("n < :v", m{":v": yes(true)}),
			"Incorrect operand type for operator or function; operator or function: <, operand type: BOOL"),
		one("begins with a number", operators, when("begins_with(n, :v)", v),
			"Incorrect operand type for operator or function; operator or function: begins_with, operand type: N"),
		one("unknown type", operators, when("attribute_type(n, :v)", m{":v": str("X")}),
			"Invalid attribute type name found; type: X"),
		one("bounds", operators, when("n BETWEEN :a AND :b", m{":a": num("2"), ":b": num("1")}),
			"The BETWEEN operator requires upper bound to be greater than or equal to lower bound; lower bound operand: AttributeValue: {N:2}, upper bound operand: AttributeValue: {N:1}"),
		one("set of a string", updates, update("ADD n :v", m{":v": str("x")}),
			"Incorrect operand type for operator or function; operator: ADD, operand type: STRING"),
		one("redundant parentheses", operators, when("((n = :v))", v),
			"Invalid ConditionExpression: The expression has redundant parentheses;"),
		one("redundant parentheses of a whole", operators, when("((n = :v AND NOT (n < :v)))", v), "redundant parentheses"),
		one("redundant parentheses of an operand", operators, when("n = ((:v))", v), "redundant parentheses"),
		one("redundant parentheses behind NOT", operators, when("NOT ((n = :v))", v), "redundant parentheses"),
		one("an attribute and itself", operators, when("l[0].n = l[0].n", nil),
			"The first operand must be distinct from the remaining operands for this operator or function; operator: =, first operand: [l, [0], n]"),
		one("a function of an attribute and itself", operators, when("contains(s, s)", nil), "operator: contains, first operand: [s]"),
		one("301 operators", "developerguide/Constraints.html", when("n = :v"+strings.Repeat(" OR n=:v", 150), v),
			"The expression contains too many operators; operator count: 301, max operator count: 300"),
		one("301 operators of an update", "developerguide/Constraints.html", update("SET "+sums(301), v), "max operator count: 300"),
		one("long expression", "developerguide/Constraints.html", when("n = :v"+strings.Repeat(" ", 4096), v),
			"Expression size has exceeded the maximum allowed size"),
		one("expected", "developerguide/LegacyConditionalParameters.html", old, ""),
		one("key of another form", "APIReference/API_GetItem.html", &ddb.GetItemInput{TableName: rows,
			Key: m{"pk": str("p")}}, "The provided key element does not match the schema"),
		row{name: "refused/size of a number", source: operators, steps: []call{
			put(sample()), {in: when("size(n) > :v", v), want: "ValidationException",
				says: "operator or function: size, operand type: N"},
		}},
		row{name: "refused/no table", source: "APIReference/API_GetItem.html", steps: []call{
			{in: &ddb.GetItemInput{TableName: aws.String("nothing"), Key: key("a")}, want: "ResourceNotFoundException",
				says: "Requested resource not found"},
		}},
		row{name: "ttl", source: "APIReference/API_UpdateTimeToLive.html", steps: []call{
			{in: &ddb.DescribeTimeToLiveInput{TableName: rows}, want: "DISABLED "},
			{in: ttl("gone"), want: "ok"},
			{in: &ddb.DescribeTimeToLiveInput{TableName: rows}, want: "ENABLED gone"},
			{in: ttl("gone"), want: "ValidationException", says: "TimeToLive is already enabled"},
		}},
	)
}

// sums are n assignments of a sum.
func sums(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("a%d=n+:v", i)
	}
	return strings.Join(out, ",")
}

func ttl(attribute string) *ddb.UpdateTimeToLiveInput {
	return &ddb.UpdateTimeToLiveInput{TableName: rows,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &attribute, Enabled: aws.Bool(true)}}
}
