//go:build unix

// Package trace follows one message through processes, by the spans that they export.
package trace

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/semel-dev/semel/adapters/sqlite"
	semelotel "github.com/semel-dev/semel/contrib/otel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/tests/internal/binary"
)

// TestFM16_OneMessageFromItsSenderToItsDuplicate: a message runs in a worker that is killed, then in another one; a copy that
// the producer sends again is skipped. The handlers get the span of their run, and the duplicate links to the run that took
// effect. docs/monitoring.md shows the picture that this test draws of the exported spans.
func TestFM16_OneMessageFromItsSenderToItsDuplicate(t *testing.T) {
	s := newFixture(t)
	s.send("m-1")
	first := s.worker("worker 1", fmt.Sprintf(`echo "$TRACEPARENT" > %s; sleep 600`, s.pipe))
	interrupted := s.heard()
	first.Kill()

	second := s.worker("worker 2", fmt.Sprintf(`echo "$TRACEPARENT" > %s`, s.pipe))
	took := s.heard()
	s.collector.await("the effect", func(x span) bool { return x.attributes["semel.decision"] == "executed" })
	s.send("m-2")
	s.collector.await("the duplicate", func(x span) bool { return x.attributes["semel.decision"] == "replayed" })
	if err := second.Terminate(); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := s.producer.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}

	p := picture{}
	for _, x := range s.collector.all() {
		if x.process != "worker 1" && x.attributes["semel.decision"] != "busy_deferred" { // what it exported before it was killed
			p.spans = append(p.spans, x)
		}
	}
	run := p.one(t, "process orders")
	if took.TraceID() != run.trace || took.SpanID() != run.id {
		t.Errorf("the second handler's TRACEPARENT is %q, and its run is %+v", took, run)
	}
	sent := p.span(run.parent)
	if sent == nil {
		t.Fatalf("the run has no sender: %+v", p.spans)
	}
	if interrupted.TraceID() != sent.trace || p.span(interrupted.SpanID()) != nil {
		t.Errorf("the first handler's TRACEPARENT is %q", interrupted)
	}
	p.spans = append(p.spans, span{
		name: "process orders", trace: interrupted.TraceID(), id: interrupted.SpanID(), parent: sent.id, process: "worker 1",
		attributes: map[string]string{"killed": "killed: its span never ended"}, start: run.start - 1,
	})
	if skip := p.one(t, "skip orders"); !slices.Contains(skip.links, run.id) || skip.failed {
		t.Errorf("the duplicate: %+v", skip)
	}
	drawn := p.draw()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), "```text\n"+drawn+"```\n") {
		t.Errorf("docs/monitoring.md does not show this picture:\n%s", drawn)
	}
}

// fixture is what the test runs on: a queue, a collector, a producer and a pipe through which handlers speak.
type fixture struct {
	*testing.T
	semel, queue, pipe string
	db                 *sqlite.DB
	collector          *endpoint
	producer           *sdktrace.TracerProvider
}

func newFixture(t *testing.T) *fixture {
	dir := t.TempDir()
	s := &fixture{T: t, queue: "sqlite:" + filepath.Join(dir, "shop.db") + "?queue=orders", pipe: filepath.Join(dir, "pipe"), collector: newEndpoint(t)}
	var err error
	if s.semel, err = binary.Build(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(s.pipe, 0o600); err != nil {
		t.Skip("this system has no named pipes: ", err)
	}
	if s.db, err = sqlite.Open(t.Context(), filepath.Join(dir, "shop.db"), sqlite.Options{Create: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.db.Close() })
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(s.collector.url+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	s.producer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "producer"))))
	return s
}

// send sends a message of order 7.
func (s *fixture) send(id string) {
	s.Helper()
	q := semelotel.Queue(s.db.Queue("orders"), semelotel.Options{TracerProvider: s.producer})
	if err := q.(driver.Sender).Send(s.Context(), driver.Message{ID: id, Body: []byte(`{"order": 7}`)}); err != nil {
		s.Fatal(err)
	}
}

// worker starts a worker whose handler is a shell command.
func (s *fixture) worker(name, handler string) *process.Process {
	s.Helper()
	c := exec.Command(s.semel, "work", "--queue", s.queue, "--key", "json:/order", "--visibility", "1s", "--traces", "otlp", "--exec", handler)
	c.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+s.collector.url, "OTEL_SERVICE_NAME="+name, "OTEL_BSP_SCHEDULE_DELAY=20")
	c.Stderr = s.Output()
	return process.StartTest(s, c)
}

// heard returns the TRACEPARENT of the handler that runs next.
func (s *fixture) heard() driver.Traceparent {
	s.Helper()
	line, err := os.ReadFile(s.pipe)
	if err != nil {
		s.Fatal(err)
	}
	t, ok := driver.ParseTraceparent(strings.TrimSpace(string(line)))
	if !ok {
		s.Fatalf("the handler's TRACEPARENT is %q", line)
	}
	return t
}
