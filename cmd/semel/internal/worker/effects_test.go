package worker

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
)

func TestReadEffects(t *testing.T) {
	var tx semel.Statements
	result, err := readEffects([]byte(`{"sql":"INSERT INTO t VALUES (?, ?)","args":[12345678901234567890, "x"],"rows":1}

 {"sql":"DELETE FROM t","args":[null, true, 1.5, {"base64":"AAE="}, {"base64":"x","more":1}, [1]]}
{"result":{"ok": true}}
`), &tx)
	if err != nil || string(result) != `{"ok": true}` {
		t.Fatalf("%s %v", result, err)
	}
	want := []any{nil, true, json.Number("1.5"), []byte{0, 1}, map[string]any{"base64": "x", "more": json.Number("1")}, []any{json.Number("1")}}
	if len(tx.List) != 2 || tx.List[0].Rows != 1 || tx.List[1].Rows != -1 || !reflect.DeepEqual(tx.List[1].Args, want) {
		t.Errorf("%+v", tx.List)
	}
	if n := tx.List[0].Args[0]; n != json.Number("12345678901234567890") {
		t.Errorf("a large number became %v", n)
	}
	if result, err := readEffects(nil, &tx); err != nil || result != nil {
		t.Errorf("nothing: %q %v", result, err)
	}
}

func TestReadEffectsRows(t *testing.T) {
	var tx semel.Statements
	result, err := readEffects([]byte(`{"insert":"app.ledger","row":{"id":"a","amount":12345678901234567890,"more":{"x":[1]},"raw":{"base64":"AAE="},"gone":null}}
{"row":{"amount":1,"id":"b"},"insert":"ledger"}
{"sql":"DELETE FROM t"}
{"insert":"ledger","row":{"id":"c","amount":true}}
{"result":1}`), &tx)
	if err != nil || string(result) != "1" || len(tx.List) != 4 {
		t.Fatalf("%s %v %+v", result, err, tx.List)
	}
	var want semel.Statements
	want.Insert("app.ledger", []string{"amount", "gone", "id", "more", "raw"},
		json.Number("12345678901234567890"), nil, "a", map[string]any{"x": []any{json.Number("1")}}, []byte{0, 1})
	want.Insert("ledger", []string{"amount", "id"}, json.Number("1"), "b")
	want.Exec("DELETE FROM t")
	want.Insert("ledger", []string{"amount", "id"}, true, "c")
	want.List[2].Args = nil
	if !reflect.DeepEqual(tx, want) {
		t.Errorf("queued %+v, want %+v", tx.List, want.List)
	}
}

func TestReadEffectsBadLines(t *testing.T) {
	for in, want := range map[string]string{
		"hello":                                     "line 1",
		`{"insert":"t"}`:                            `"insert" needs "row"`,
		`{"insert":"t","row":{}}`:                   `"insert" needs "row"`,
		`{"insert":"t","row":null}`:                 `"insert" needs "row"`,
		`{"insert":"","row":{"a":1}}`:               `"row" needs "insert"`,
		`{"row":{"a":1}}`:                           `"row" needs "insert"`,
		`{"insert":"t","row":{"":1}}`:               "column without a name",
		`{"insert":"t","row":[1]}`:                  "row",
		`{"insert":"t","rows":{"a":1}}`:             "rows",
		`{"insert":"t","row":{"a":1},"rows":1}`:     "a line for each",
		`{"insert":"t","row":{"a":1},"sql":"x"}`:    "a line for each",
		`{"insert":"t","row":{"a":1},"result":1}`:   "stands alone",
		`{"insert":"t","columns":["a"]}`:            `unknown field "columns"`,
		`{"sql":"x","row":{}}`:                      "a line for each",
		`{"args":[1]}`:                              `"args" and "rows" need "sql"`,
		`{"insert":"t","row":{"a":{"base64":"%"}}}`: `column "a"`,
		"{\"sql\":\"DELETE FROM t\"}\n\n[1]":        "line 3",
		`{"sql":""}`:                                `"sql" is empty`,
		`{}`:                                        `want "sql", "insert" or "result"`,
		`{"sql":"x","result":1}`:                    "stands alone",
		`{"result":1,"rows":1}`:                     "stands alone",
		`{"sql":"x","rows":-1}`:                     "negative",
		`{"sql":"x","arg":1}`:                       `unknown field "arg"`,
		`{"sql":"x"} {"sql":"y"}`:                   "one JSON object a line",
		`{"sql":"x","args":[{"base64":"%"}]}`:       "argument 1",
		"{\"result\":1}\n{\"result\":2}":            "line 2",
		`{"sql":1}`:                                 "line 1",
		`{"sql":"x","args":"y"}`:                    "line 1",
		"{\"sql\":\"" + strings.Repeat("x", 9999):   "line 1",
	} {
		var tx semel.Statements
		if _, err := readEffects([]byte(in), &tx); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 400 {
			t.Errorf("%.60q: %v, want %q", in, err, want)
		}
	}
}
