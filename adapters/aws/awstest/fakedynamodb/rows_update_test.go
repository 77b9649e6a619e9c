package fakedynamodb_test

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

const updates = "developerguide/Expressions.UpdateExpressions.html"

func updateRows() []row {
	// one is a single update of an item with these attributes.
	one := func(name string, before m, expr string, values m, want string) row {
		return row{name: "update/" + name, source: updates, steps: []call{put(with("a", before)), {in: update(expr, values),
			want: want}}}
	}
	out := []row{
		one("set", m{"n": num("1")}, "SET n = :v, o = :w", m{":v": num("2"), ":w": str("x")}, "{n:2 o:'x' sk:'a'}"),
		one("plus", m{"n": num("1")}, "SET n = n + :v", m{":v": num("2.5")}, "{n:3.5 sk:'a'}"),
		one("minus", m{"n": num("1")}, "SET n = n - :v", m{":v": num("2")}, "{n:-1 sk:'a'}"),
		one("decimals are exact", m{"n": num("0.1")}, "SET n = n + :v", m{":v": num("0.2")}, "{n:0.3 sk:'a'}"),
		one("38 digits", m{"n": num("99999999999999999999999999999999999998")}, "ADD n :v", m{":v": num("1")},
			"{n:99999999999999999999999999999999999999 sk:'a'}"),
		one("if_not_exists takes the old", m{"n": num("1")}, "SET n = if_not_exists(n, :v)", m{":v": num("9")}, "{n:1 sk:'a'}"),
		one("if_not_exists takes the new", nil, "SET n = if_not_exists(n, :z) + :v", m{":v": num("9"), ":z": num("0")},
			"{n:9 sk:'a'}"),
		one("list_append", m{"l": list(num("1"))}, "SET l = list_append(l, :v)", m{":v": list(num("2"))}, "{l:[1 2] sk:'a'}"),
		one("list_append in front", m{"l": list(num("1"))}, "SET l = list_append(:v, l)", m{":v": list(num("2"))},
			"{l:[2 1] sk:'a'}"),
		one("list_append of what may be missing", nil, "SET l = list_append(if_not_exists(l, :e), :v)",
			m{":v": list(num("2")), ":e": list()}, "{l:[2] sk:'a'}"),
		one("element", m{"l": list(num("1"), num("2"))}, "SET l[1] = :v", m{":v": num("9")}, "{l:[1 9] sk:'a'}"),
		one("element behind the end is appended", m{"l": list(num("1"))}, "SET l[7] = :v", m{":v": num("9")}, "{l:[1 9] sk:'a'}"),
		one("in a map", m{"d": doc(m{"x": num("1")})}, "SET d.y = :v", m{":v": num("9")}, "{d:{x:1 y:9} sk:'a'}"),
		one("remove", m{"n": num("1"), "o": num("2")}, "REMOVE n, nope", nil, "{o:2 sk:'a'}"),
		one("remove elements by the old indices", m{"l": list(num("1"), num("2"), num("3"))}, "REMOVE l[0], l[1]", nil,
			"{l:[3] sk:'a'}"),
		one("remove an element that is not there", m{"l": list(num("1"))}, "REMOVE l[4]", nil, "{l:[1] sk:'a'}"),
		one("add to nothing", nil, "ADD n :v", m{":v": num("5")}, "{n:5 sk:'a'}"),
		one("add to a set", m{"t": strs("a")}, "ADD t :v", m{":v": strs("a", "b")}, "{sk:'a' t:<a b>}"),
		one("delete from a set", m{"t": strs("a", "b")}, "DELETE t :v", m{":v": strs("a", "z")}, "{sk:'a' t:<b>}"),
		one("delete the last of a set", m{"t": strs("a")}, "DELETE t :v", m{":v": strs("a")}, "{sk:'a'}"),
		one("delete from nothing", nil, "DELETE t :v", m{":v": strs("a")}, "{sk:'a'}"),
		one("operands are the values before", m{"x": num("1"), "y": num("2")}, "SET x = y, y = x", nil, "{sk:'a' x:2 y:1}"),
		one("all clauses", m{"x": num("1"), "t": strs("a", "b"), "n": num("1")}, "REMOVE x SET y = x ADD n :n DELETE t :t",
			m{":n": num("1"), ":t": strs("b")}, "{n:2 sk:'a' t:<a> y:1}"),

		one("missing operand", nil, "SET n = nope + :v", m{":v": num("1")}, "ValidationException"),
		one("operand of another type", m{"s": str("x")}, "SET n = s + :v", m{":v": num("1")}, "ValidationException"),
		one("add of another type", m{"s": str("x")}, "ADD s :v", m{":v": num("1")}, "ValidationException"),
		one("path into nothing", nil, "SET d.x = :v", m{":v": num("1")}, "ValidationException"),
		one("path through a number", m{"n": num("1")}, "SET n.x = :v", m{":v": num("1")}, "ValidationException"),
		one("too many digits", m{"n": num("1e50")}, "ADD n :v", m{":v": num("1")}, "ValidationException"),
		one("overlap", m{"d": doc(m{"x": num("1")})}, "SET d = :v, d.x = :v", m{":v": num("1")}, "ValidationException"),
		one("twice the same", nil, "SET n = :v REMOVE n", m{":v": num("1")}, "ValidationException"),
		one("key", nil, "SET sk = :v", m{":v": str("b")}, "ValidationException"),
		one("clause twice", nil, "SET n = :v SET o = :v", m{":v": num("1")}, "ValidationException"),
	}
	for i, says := range updateErrors() {
		for j := range out {
			if out[j].name == "update/"+i {
				out[j].steps[1].says = says
			}
		}
	}
	return append(out, returnRows()...)
}

// updateErrors are the words of updates that are refused.
func updateErrors() map[string]string {
	return map[string]string{
		"missing operand":         "The provided expression refers to an attribute that does not exist in the item",
		"operand of another type": "An operand in the update expression has an incorrect data type",
		"add of another type":     "An operand in the update expression has an incorrect data type",
		"path into nothing":       "The document path provided in the update expression is invalid for update",
		"path through a number":   "The document path provided in the update expression is invalid for update",
		"too many digits":         "Number overflow. Attempting to store a number with magnitude larger than supported range",
		"overlap":                 "Two document paths overlap with each other; must remove or rewrite one of these paths; path one: [d], path two: [d, x]",
		"twice the same":          "Two document paths overlap with each other",
		"key":                     "Cannot update attribute sk. This attribute is part of the key",
		"clause twice":            `The "SET" section can only be used once in an update expression;`,
	}
}

// returnRows are the five ReturnValues, and what an update makes of an item that is not there.
func returnRows() []row {
	out := []row{}
	for mode, want := range map[string]string{
		"NONE": "ok", "ALL_OLD": "{keep:1 l:[1 2] sk:'a' v:1}", "UPDATED_OLD": "{l:[2] v:1}",
		"ALL_NEW":     "{keep:1 l:[1 9] new:5 sk:'a' v:2}",
		"UPDATED_NEW": "{l:[9] new:5 v:2}",
	} {
		in := update("SET v = :v, #n = :n, l[1] = :e", m{":v": num("2"), ":n": num("5"), ":e": num("9")})
		in.ReturnValues, in.ExpressionAttributeNames = types.ReturnValue(mode), map[string]string{"#n": "new"}
		out = append(out, row{
			name: "update/returns " + mode, source: "APIReference/API_UpdateItem.html",
			steps: []call{put(with("a", m{"v": num("1"), "keep": num("1"), "l": list(num("1"), num("2"))})), {in: in, want: want}},
		})
	}
	plain := &ddb.UpdateItemInput{TableName: rows, Key: key("a")}
	return append(out,
		row{name: "update/without expression makes an item", source: "APIReference/API_UpdateItem.html", steps: []call{
			{in: plain, want: "ok"}, {in: get("a"), want: "{sk:'a'}"},
		}},
		row{name: "update/remove makes no item", source: "APIReference/API_UpdateItem.html", steps: []call{
			{in: &ddb.UpdateItemInput{TableName: rows, Key: key("a"), UpdateExpression: aws.String("REMOVE v")}, want: "ok"},
			{in: get("a"), want: "none"},
		}},
		row{name: "put/returns the old", source: "APIReference/API_PutItem.html", steps: []call{
			put(with("a", m{"v": num("1")})),
			{in: &ddb.PutItemInput{TableName: rows, Item: with("a", m{"w": num("2")}), ReturnValues: "ALL_OLD"},
				want: "{sk:'a' v:1}"},
			{in: get("a"), want: "{sk:'a' w:2}"},
			{in: &ddb.PutItemInput{TableName: rows, Item: key("a"), ReturnValues: "ALL_NEW"}, want: "ValidationException",
				says: "ReturnValues can only be ALL_OLD or NONE"},
		}},
	)
}

func valueRows() []row {
	const page = "developerguide/HowItWorks.NamingRulesDataTypes.html"
	out := []row{}
	for _, c := range []struct {
		name string
		in   m
		want string // what is read back, or the error
		says string
	}{
		{"every type", sample(), showItem(sample()), ""},
		{"zeros are trimmed", with("a", m{"n": num("0012.500")}), "{n:12.5 sk:'a'}", ""},
		{"exponents are written out", with("a", m{"n": num("1.5E3")}), "{n:1500 sk:'a'}", ""},
		{"largest", with("a", m{"n": num("9.9999999999999999999999999999999999999E125")}),
			"{n:" + strings.Repeat("9", 38) + strings.Repeat("0", 88) + " sk:'a'}", ""},
		{"smallest", with("a", m{"n": num("-1E-130")}), "{n:-0." + strings.Repeat("0", 129) + "1 sk:'a'}", ""},
		{"empty text", with("a", m{"s": str("")}), "{s:'' sk:'a'}", ""},
		{"empty map and list", with("a", m{"d": doc(m{}), "l": list()}), "{d:{} l:[] sk:'a'}", ""},
		{"too large", with("a", m{"n": num("1E126")}), "ValidationException", "Number overflow"},
		{"too small", with("a", m{"n": num("1E-131")}), "ValidationException", "Number underflow"},
		{"39 digits", with("a", m{"n": num("123456789012345678901234567890123456789")}), "ValidationException",
			"38 significant digits"},
		{"no number", with("a", m{"n": num("1x")}), "ValidationException", "cannot be converted to a numeric value: 1x"},
		{"infinity", with("a", m{"n": num("Infinity")}), "ValidationException", "cannot be converted to a numeric value"},
		{"empty set", with("a", m{"t": strs()}), "ValidationException", "set  may not be empty"},
		{"duplicates in a set", with("a", m{"t": strs("a", "a")}), "ValidationException",
			"Input collection [a, a] contains duplicates."},
		{"equal numbers in a set", with("a", m{"t": nums("1", "1.0")}), "ValidationException", "contains duplicates"},
		{"400 KB", with("a", m{"b": str(strings.Repeat("x", 400*1024-7))}), "{b:409593 bytes sk:'a'}", ""}, // names 2+2+1, keys 1+1
		{"one byte more", with("a", m{"b": str(strings.Repeat("x", 400*1024-6))}), "ValidationException",
			"Item size has exceeded the maximum allowed size"},
		{"no key", m{"pk": str("p")}, "ValidationException", "Missing the key sk in the item"},
		{"key of another type", m{"pk": str("p"), "sk": num("1")}, "ValidationException",
			"Type mismatch for key sk expected: S actual: N"},
		{"empty key", key(""), "ValidationException",
			"The AttributeValue for a key attribute cannot contain an empty string value. Key: sk"},
		{"long sort key", key(strings.Repeat("x", 1025)), "ValidationException", "exceeded the size limit of 1024 bytes"},
		{"long partition key", m{"pk": str(strings.Repeat("x", 2049)), "sk": str("a")}, "ValidationException",
			"maximum size limit of2048 bytes"},
	} {
		write := call{in: &ddb.PutItemInput{TableName: rows, Item: c.in}, want: "ok"}
		steps := []call{write, {in: get("a"), want: c.want}}
		if c.want == "ValidationException" {
			steps[0].want, steps[0].says = c.want, c.says
			steps[1].want = "none"
			if s, ok := c.in["sk"]; !ok || showValue(s) != "'a'" {
				steps = steps[:1]
			}
		}
		out = append(out, row{name: "value/" + c.name, source: page, steps: steps})
	}
	return out
}
