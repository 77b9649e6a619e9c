package awsjson_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semel-dev/semel/adapters/aws/awstest/internal/awsjson"
)

// ask asks a service with one operation, Fail, which fails, and one, Echo.
func ask(ctx context.Context, t *testing.T, operation, body string) *httptest.ResponseRecorder {
	t.Helper()
	s := &awsjson.Service{
		Target: "Any", ContentType: "application/x-amz-json-1.0", MaxBody: 64, Checksum: true,
		Operations: map[string]awsjson.Operation{
			"Fail": awsjson.Op(func(context.Context, struct{}) (struct{}, error) { return struct{}{}, errors.New("it failed") }),
			"Echo": awsjson.Op(func(_ context.Context, in struct{ Text string }) (any, error) { return in, nil }),
		},
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("X-Amz-Target", "Any."+operation)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// A handler that returns without writing has responded with 200, which clients take for success.
func TestAFailureIsNeverASuccess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if w := ask(ctx, t, "Fail", "{}"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "it failed") {
		t.Errorf("a failed operation whose caller is gone is returned %d %s", w.Code, w.Body)
	}
}

func TestChecksum(t *testing.T) {
	for operation, body := range map[string]string{"Fail": "{}", "Echo": `{"Text":"a"}`, "None": "{}"} {
		w := ask(t.Context(), t, operation, body)
		if got, want := w.Header().Get("X-Amz-Crc32"), awsjson.Checksum(w.Body.Bytes()); got != want || got == "" {
			t.Errorf("%s has the checksum %q, want %q", operation, got, want)
		}
	}
	if got := awsjson.Checksum([]byte("123456789")); got != "3421780262" { // the check value of CRC-32/ISO-HDLC, 0xCBF43926
		t.Errorf("checksum %s", got)
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		operation, body, says string
		status                int
	}{
		"no JSON":        {"Echo", `{"Text":`, "SerializationException", 400},
		"two values":     {"Echo", `{"Text":"a"}{}`, "SerializationException", 400},
		"another type":   {"Echo", `{"Text":1}`, "SerializationException", 400},
		"an array":       {"Echo", `[]`, "SerializationException", 400},
		"an empty body":  {"Echo", ``, `"Text":""`, 200},
		"too long":       {"Echo", `{"Text":"` + strings.Repeat("a", 64) + `"}`, "SerializationException", 413},
		"another method": {"Sing", `{}`, "UnknownOperationException", 400},
	} {
		if w := ask(t.Context(), t, c.operation, c.body); w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d %s, want %d and %s", name, w.Code, w.Body, c.status, c.says)
		}
	}
}
