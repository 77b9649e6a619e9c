package trace

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// span is a span as a process exported it.
type span struct {
	name, trace, id, parent string
	process                 string // service.name
	links                   []string
	attributes              map[string]string
	start                   uint64
	failed                  bool
}

// endpoint is a collector: it takes spans as OTLP over HTTP.
type endpoint struct {
	*testing.T
	url string

	mu    sync.Mutex
	spans []span
	more  chan struct{}
}

func newEndpoint(t *testing.T) *endpoint {
	e := &endpoint{T: t, more: make(chan struct{}, 1)}
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	e.url = srv.URL
	return e
}

// ServeHTTP takes one request of an exporter.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var in collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &in)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		e.Errorf("%s %s: %v", r.Method, r.URL, err)
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, rs := range in.GetResourceSpans() {
		process := attributes(rs.GetResource().GetAttributes())["service.name"]
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				e.spans = append(e.spans, spanOf(process, s))
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	select {
	case e.more <- struct{}{}:
	default:
	}
}

func spanOf(process string, s *otlp.Span) span {
	x := span{
		name: s.GetName(), trace: hex.EncodeToString(s.GetTraceId()), id: hex.EncodeToString(s.GetSpanId()),
		parent: hex.EncodeToString(s.GetParentSpanId()), process: process, attributes: attributes(s.GetAttributes()),
		start: s.GetStartTimeUnixNano(), failed: s.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR,
	}
	for _, l := range s.GetLinks() {
		x.links = append(x.links, hex.EncodeToString(l.GetSpanId()))
	}
	return x
}

func attributes(all []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range all {
		switch v := kv.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			m[kv.GetKey()] = v.StringValue
		case *common.AnyValue_BoolValue:
			m[kv.GetKey()] = map[bool]string{true: "true", false: "false"}[v.BoolValue]
		case *common.AnyValue_IntValue:
			m[kv.GetKey()] = string(rune('0' + v.IntValue%10)) // attempts and counts of this test are small
		}
	}
	return m
}

// all returns the spans that have arrived.
func (e *endpoint) all() []span {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]span(nil), e.spans...)
}

// await waits until a span has arrived that is looked for.
func (e *endpoint) await(what string, found func(span) bool) {
	e.Helper()
	for {
		for _, s := range e.all() {
			if found(s) {
				return
			}
		}
		select {
		case <-e.more:
		case <-e.Context().Done():
			e.Fatalf("no span of %s: %+v", what, e.all())
		}
	}
}
