package fakedynamodb

import (
	"encoding/json"
	"testing"
)

// FuzzExpressions parses any text as any kind of expression, and carries out valid ones: they may be refused, but must not
// panic, and an update never modifies the item before.
func FuzzExpressions(f *testing.F) {
	for _, s := range []string{
		"a = :v", "#n <> :w AND NOT (b < :v OR c[0].d >= :v)", "attribute_exists(a) and begins_with(a, :s)", "a BETWEEN :v AND :v",
		"a IN (:v, :s, b)", "size(a) > :v", "contains(l, :v)", "attribute_type(a, :s)",
		"SET a = b + :v, l[1] = if_not_exists(l[0], :v)",
		"SET l = list_append(l, :l) REMOVE l[0], l[1], m.x ADD n :v, t :t DELETE t :t", "a.b[3].#n, c, l[0]", "((((",
		"a = = b", ":", "#", "[", "SET",
		"REMOVE l[99999999999999999999]", "\x00\xff", "NOT NOT NOT a = :v", "size(size(a)) = :v", "SET a = (b - :v)", "",
		" ", "a = :v AND", "l[0][0][0]",
	} {
		f.Add(s)
	}
	n := value{kind: "N", text: "1"}
	l := value{kind: "L", list: []value{n, {kind: "S", text: "x"}, n}}
	set := value{kind: "SS", set: []string{"a", "b"}}
	f.Fuzz(func(t *testing.T, src string) {
		it := item{"a": {kind: "S", text: "abc"}, "b": n, "n": n, "l": l, "t": set, "m": {kind: "M", m: item{"x": n, "l": l}}}
		before := it.public()
		b, err := bind(map[string]string{"#n": "n"}, item{":v": n, ":w": {kind: "BOOL"}, ":s": {kind: "S", text: "SS"},
			":l": l, ":t": set}, true)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := parseCondition("ConditionExpression", src, b); err == nil {
			_, _ = c.eval(it)
			_ = keyInFilter(c, []string{"a"})
			_, _, _, _ = relation(c)
		}
		if p, err := parseProjection(src, b); err == nil {
			_ = project(it, p).size()
		}
		if c, err := parseUpdate(src, b); err == nil {
			if after, err := apply(it, c); err == nil {
				_ = project(after, paths(c)).size()
			}
		}
		if now := it.public(); !sameItem(before, now) {
			t.Fatalf("%q changed the item before: %v, was %v", src, now, before)
		}
	})
}

// FuzzNumbers compares the text forms of numbers: a written number reads as the same number.
func FuzzNumbers(f *testing.F) {
	for _, s := range []string{"0", "-0", "1", "-1.50", "1e125", "1E-130", "+.5", "5.", "0e1000", "1e", "e1", ".",
		"1e999999999999", "--1", "1.-2", "00012.3400"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseNumber(s)
		if err != nil {
			return
		}
		again, err := parseNumber(d.String())
		if err != nil || again.cmp(d) != 0 || again.String() != d.String() {
			t.Fatalf("%q reads as %s, and that as %v: %v", s, d, again, err)
		}
		if n := numberSize(d.String()); n < 1 || n > 21 {
			t.Fatalf("%q has %d bytes", s, n)
		}
		if zero, err := d.add(d.neg()); err != nil || zero.String() != "0" {
			t.Fatalf("%q less itself is %v: %v", s, zero, err)
		}
	})
}

func sameItem(a, b Item) bool { return toText(a) == toText(b) }

// FuzzCodec compares the fast reader of items with encoding/json: both return the same item, or an error. A written item
// reads as the same item.
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
