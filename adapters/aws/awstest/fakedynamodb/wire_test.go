package fakedynamodb_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/logging"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
)

// wire sends a raw request.
func wire(t *testing.T, s http.Handler, operation, body string) (status int, response string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+operation)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestRequestsThatAreNone(t *testing.T) {
	s, _ := begin(t, fakedynamodb.Options{})
	const validation, serialization = "#ValidationException", "#SerializationException"
	item := func(v string) string {
		return `{"TableName":"rows","Item":{"pk":{"S":"p"},"sk":{"S":"a"},"v":` + v + `}}`
	}
	for name, c := range map[string]struct{ body, want string }{
		"no JSON":             {`{"TableName":`, serialization},
		"something behind it": {item(`{"S":"x"}`) + `{}`, serialization},
		"a brace behind it":   {item(`{"S":"x"}`) + `}`, serialization},
		"a number as text":    {`{"TableName":1}`, serialization},
		"text as a number":    {item(`{"N":1}`), serialization},
		"not base64":          {item(`{"B":"%"}`), serialization},
		"unknown type":        {item(`{"X":"x"}`), serialization},
		"two types":           {item(`{"S":"x","N":"1"}`), validation},
		"no type":             {item(`{}`), validation},
		"null":                {item(`null`), validation},
		"null text":           {item(`{"S":null}`), validation},
		"null list in a map":  {item(`{"M":{"l":{"L":null}}}`), validation},
	} {
		if status, response := wire(t, s, "PutItem", c.body); status != 400 || !strings.Contains(response, c.want) {
			t.Errorf("%s: %d %s, want %s", name, status, response, c.want)
		}
	}
	empty := `{"RequestItems":{"rows":{"Keys":[]}}}` // the SDK does not send it
	if status, response := wire(t, s, "BatchGetItem", empty); status != 400 || !strings.Contains(response, "Member must have length") {
		t.Errorf("a batch without keys: %d %s", status, response)
	}
	if left := s.Items("rows"); len(left) != 0 {
		t.Errorf("wrote %v", left)
	}
}

// Responses have the service's checksum. The SDK compares bodies with it, and only logs a difference.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html
func TestTheSDKComparesChecksums(t *testing.T) {
	s, _ := begin(t, fakedynamodb.Options{})
	spoil := false
	config := awstest.Config(s, func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			got, err := next.RoundTrip(r)
			if err != nil || !spoil {
				return got, err
			}
			b, err := io.ReadAll(got.Body)
			got.Body = io.NopCloser(bytes.NewReader(bytes.Replace(b, []byte(`"x"`), []byte(`"y"`), 1)))
			return got, err
		})
	})
	var complaints int
	config.Logger = logging.LoggerFunc(func(logging.Classification, string, ...any) { complaints++ })
	c := ddb.NewFromConfig(config)
	must(t, c, put(with("a", m{"v": str("x")})).in, "ok")
	must(t, c, get("a"), "{sk:'a' v:'x'}")
	must(t, c, when("v = :y", m{":y": str("y")}), "ConditionalCheckFailedException")
	if complaints != 0 {
		t.Errorf("the SDK complains %d times about unchanged responses", complaints)
	}
	spoil = true
	must(t, c, get("a"), "{sk:'a' v:'y'}")
	if complaints != 1 {
		t.Errorf("the SDK complains %d times about a response that was changed on its way, want once", complaints)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
