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

func TestReadEffectsBadLines(t *testing.T) {
	for in, want := range map[string]string{
		"hello":                                   "line 1",
		"{\"sql\":\"DELETE FROM t\"}\n\n[1]":      "line 3",
		`{"sql":""}`:                              `"sql" is empty`,
		`{}`:                                      `want "sql" or "result"`,
		`{"sql":"x","result":1}`:                  "stands alone",
		`{"result":1,"rows":1}`:                   "stands alone",
		`{"sql":"x","rows":-1}`:                   "negative",
		`{"sql":"x","row":1}`:                     `unknown field "row"`,
		`{"sql":"x"} {"sql":"y"}`:                 "one JSON object a line",
		`{"sql":"x","args":[{"base64":"%"}]}`:     "argument 1",
		"{\"result\":1}\n{\"result\":2}":          "line 2",
		`{"sql":1}`:                               "line 1",
		`{"sql":"x","args":"y"}`:                  "line 1",
		"{\"sql\":\"" + strings.Repeat("x", 9999): "line 1",
	} {
		var tx semel.Statements
		if _, err := readEffects([]byte(in), &tx); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 400 {
			t.Errorf("%.60q: %v, want %q", in, err, want)
		}
	}
}
