// Package schema validates what the binary makes up by the JSON schema that it prints, with somebody else's validator.
package schema

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/semel-dev/semel/tests/internal/binary"
)

// semel runs the binary in dir and returns what it printed.
func semel(t *testing.T, bin, dir string, args ...string) []byte {
	t.Helper()
	var errs bytes.Buffer
	cmd := exec.Command(bin, args...)
	cmd.Dir, cmd.Stderr = dir, &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("semel %s: %v\n%s", strings.Join(args, " "), err, errs.Bytes())
	}
	return out
}

// printed is the schema that semel send --schema prints.
func printed(t *testing.T, bin string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(semel(t, bin, t.TempDir(), "send", "--schema")))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("message.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("message.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestS3_42_MadeUpMessagesAreOfTheirSchema(t *testing.T) {
	bin, err := binary.Build()
	if err != nil {
		t.Fatal(err)
	}
	schema, dir := printed(t, bin), t.TempDir()
	valid := func(body string) error {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		if err != nil {
			return err
		}
		return schema.Validate(v)
	}

	const queue = "sqlite:q.db?queue=made"
	semel(t, bin, dir, "send", "--queue", queue, "--n", "300", "--poison-count", "40", "--duplicate-rate", "0.1")
	all, poison := 0, 0
	for lines := bufio.NewScanner(bytes.NewReader(semel(t, bin, dir, "queue", "peek", "--queue", queue, "--limit", "1000", "-o", "jsonl"))); lines.Scan(); {
		var m struct{ Body string }
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		if err := valid(m.Body); err != nil {
			t.Errorf("%s: %v", m.Body, err)
		}
		if all++; strings.Contains(m.Body, "poison") {
			poison++
		}
	}
	if all != 330 || poison < 40 {
		t.Errorf("%d messages, %d of them poison", all, poison)
	}

	const id = `"id":"3f2c1b9e-0a4d-4c6f-8b7a-1d2e3f405162"`
	if err := valid(`{` + id + `,"work":1000,"poison":true}`); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		`{` + id + `}`, `{"work":1}`, `{` + id + `,"work":0}`, `{` + id + `,"work":1001}`, `{` + id + `,"work":1.5}`,
		`{` + id + `,"work":1,"poison":false}`, `{` + id + `,"work":1,"more":1}`, `{"id":"order-1","work":1}`, `[]`,
		`{"id":"3f2c1b9e-0a4d-7c6f-8b7a-1d2e3f405162","work":1}`,
	} {
		if valid(bad) == nil {
			t.Errorf("%s passes", bad)
		}
	}
}
