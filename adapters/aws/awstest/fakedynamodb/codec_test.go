package fakedynamodb

import (
	"encoding/json"
	"testing"
)

// FuzzCodec compares the short way of reading items with that of encoding/json: the same item, or an error in both; and what
// is written reads as the same item.
func FuzzCodec(f *testing.F) {
	for _, s := range []string{
		`{}`, `null`, `{"a":{"S":"x"}}`, ` { "a" : { "S" : "x" } , "b" : {"N":"12"} } `, `{"a":{"S":"\u00e9\n"}}`, `{"a":{"S":"é<&>"}}`,
		`{"a":{"N":"007"}}`, `{"a":{"N":"-1.50"}}`, `{"a":{"N":"1e3"}}`, `{"a":{"N":""}}`, `{"a":{"N":"0"}}`, `{"a":{"N":12}}`,
		`{"a":{"B":"YWI="}}`, `{"a":{"B":"YW"}}`, `{"a":{"B":""}}`, `{"a":{"BOOL":true},"b":{"BOOL":false},"c":{"BOOL":"true"}}`,
		`{"a":{"NULL":true}}`, `{"a":{"NULL":false}}`, `{"a":{"L":[]},"b":{"L":[{"S":"x"},{"L":[{"N":"1"}]}]},"c":{"L":null}}`,
		`{"a":{"M":{}},"b":{"M":{"c":{"M":{"d":{"S":""}}}}},"e":{"M":null}}`, `{"a":{"SS":["x","y"]},"b":{"NS":["1","02"]},"c":{"BS":["YQ=="]}}`,
		`{"a":{"SS":[]}}`, `{"a":{"SS":["x","x"]}}`, `{"a":{}}`, `{"a":{"S":"x","N":"1"}}`, `{"a":{"S":"x","S":"y"}}`, `{"a":{"X":"x"}}`,
		`{"a":{"S":null}}`, `{"a":{"S":"x"},"a":{"S":"y"}}`, `{"":{"S":"x"}}`, "{\"a\":{\"S\":\"\xff\"}}", `{"a":"x"}`, `[]`, `"x"`, `{"a":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		if !json.Valid(src) {
			return
		}
		var got item
		var want map[string]value
		err, other := json.Unmarshal(src, &got), json.Unmarshal(src, &want)
		if (err == nil) != (other == nil) || err != nil && err.Error() != other.Error() {
			t.Fatalf("%s: %v, by encoding/json %v", src, err, other)
		}
		if err != nil {
			return
		}
		if (got == nil) != (want == nil) || !got.equal(want) {
			t.Fatalf("%s reads as %v, by encoding/json as %v", src, got, want)
		}
		b, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var again item
		if err := json.Unmarshal(b, &again); err != nil || !again.equal(got) {
			t.Fatalf("%s is written as %s, which reads as %v, %v", src, b, again, err)
		}
	})
}
