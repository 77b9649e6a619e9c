package semellambda_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ruleInput and targetsInput are the members of PutRule and PutTargets that the examples use. Unknown members are an error.
//
// https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutRule.html,
// https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutTargets.html
type ruleInput struct{ Name, Description, State, EventPattern string }

type targetsInput struct {
	Rule    string
	Targets []struct {
		ID          string `json:"Id"`
		Arn         string
		RetryPolicy struct {
			MaximumRetryAttempts, MaximumEventAgeInSeconds int
		}
		DeadLetterConfig struct{ Arn string }
	}
}

func strictly(t *testing.T, raw []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatal(err)
	}
}

func deployed(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "aws", "eventbridge", name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func patternOf(t *testing.T, file string) map[string]any {
	t.Helper()
	var in ruleInput
	strictly(t, deployed(t, file), &in)
	pattern := map[string]any{}
	if err := json.Unmarshal([]byte(in.EventPattern), &pattern); err != nil || in.Name == "" || in.State != "ENABLED" {
		t.Fatalf("%s: %+v, %v", file, in, err)
	}
	return pattern
}

// matches evaluates event patterns as far as the examples need it: nested members, lists of alternatives, suffix, prefix and
// exists. Anything else fails the test.
//
// https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-event-patterns-content-based-filtering.html
func matches(t *testing.T, pattern map[string]any, event any) bool {
	t.Helper()
	object, _ := event.(map[string]any)
	for name, want := range pattern {
		value, there := object[name]
		switch want := want.(type) {
		case map[string]any:
			if !matches(t, want, value) {
				return false
			}
		case []any:
			if !slices.ContainsFunc(want, func(w any) bool { return one(t, w, value, there) }) {
				return false
			}
		default:
			t.Fatalf("%q of the pattern is neither an object nor a list", name)
		}
	}
	return true
}

func one(t *testing.T, want, value any, there bool) bool {
	t.Helper()
	text, isText := value.(string)
	filter, isFilter := want.(map[string]any)
	if !isFilter {
		return there && want == value
	}
	if len(filter) != 1 {
		t.Fatalf("a filter with %d members: %v", len(filter), filter)
	}
	for kind, arg := range filter {
		switch kind {
		case "suffix":
			return isText && strings.HasSuffix(text, arg.(string))
		case "prefix":
			return isText && strings.HasPrefix(text, arg.(string))
		case "exists":
			return there == arg.(bool)
		default:
			t.Fatalf("filter %q is not known here", kind)
		}
	}
	return false
}

const (
	uploadEvent = `{"version":"0","id":"1","detail-type":"Object Created","source":"aws.s3","account":"111122223333","region":"us-east-1",
		"detail":{"version":"0","bucket":{"name":"uploads"},"object":{"key":"in/a.csv","size":5,"etag":"e","version-id":"V1","sequencer":"00A"},
		"reason":"PutObject"}}`
	apiCallEvent = `{"version":"0","id":"2","detail-type":"AWS API Call via CloudTrail","source":"aws.s3","account":"111122223333",
		"region":"us-east-1","detail":{"eventSource":"s3.amazonaws.com","eventName":"PutObject",
		"requestParameters":{"bucketName":"uploads","key":"in/a.csv"}}}`
	// seedPattern is the pattern that is often used by mistake: it is for CloudTrail's events.
	seedPattern = `{"source":["aws.s3"],"detail":{"eventName":["PutObject"],"requestParameters":{"key":[{"suffix":".csv"}]}}}`
)

// TestS205_RulesMatchUploads: the examples' patterns match S3's own events and none of CloudTrail's. The pattern that they
// replace does the opposite.
func TestS205_RulesMatchUploads(t *testing.T) {
	event := func(s string, replace ...string) any {
		var v any
		if err := json.Unmarshal([]byte(strings.NewReplacer(replace...).Replace(s)), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		file  string
		event any
		want  bool
	}{
		{"rule.json", event(uploadEvent), true},
		{"rule-duplicate.json", event(uploadEvent), true},
		{"rule-versions.json", event(uploadEvent), true},
		{"rule.json", event(uploadEvent, ".csv", ".txt"), false},
		{"rule.json", event(uploadEvent, "Object Created", "Object Deleted"), false},
		{"rule.json", event(uploadEvent, `"uploads"`, `"else"`), false},
		{"rule.json", event(apiCallEvent), false},
		{"rule-versions.json", event(uploadEvent, `"version-id":"V1",`, ""), false},
		{"rule-versions.json", event(apiCallEvent), false},
	} {
		if got := matches(t, patternOf(t, c.file), c.event); got != c.want {
			t.Errorf("%s matches %v: %v", c.file, c.event, got)
		}
	}
	seed := map[string]any{}
	if err := json.Unmarshal([]byte(seedPattern), &seed); err != nil {
		t.Fatal(err)
	}
	if matches(t, seed, event(uploadEvent)) || !matches(t, seed, event(apiCallEvent)) {
		t.Error("the matcher does not distinguish S3's own events from CloudTrail's")
	}
}

// TestS206_TargetsHaveARetryPolicy: the targets have a retry policy with the API's field names and bounds, and a dead-letter
// queue.
func TestS206_TargetsHaveARetryPolicy(t *testing.T) {
	var in targetsInput
	strictly(t, deployed(t, "targets.json"), &in)
	if in.Rule != "S3-CSV-Processing" || len(in.Targets) != 1 {
		t.Fatalf("%+v", in)
	}
	for _, target := range in.Targets {
		p := target.RetryPolicy
		if p.MaximumRetryAttempts != 3 || p.MaximumRetryAttempts > 185 || p.MaximumEventAgeInSeconds != 3600 || target.DeadLetterConfig.Arn == "" {
			t.Errorf("%+v", target)
		}
	}
}
