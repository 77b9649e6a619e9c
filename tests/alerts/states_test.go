package alerts

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/semeltest/server"
)

// This file makes the states that the alerts are about with real processes, and lets Prometheus's own engine judge what those
// showed, in virtual time.

// TestAllWorkersDead: when the last worker dies its figures go with it, and that rings; one of two does not, nor does an empty
// queue that has no workers because it needs none.
func TestAllWorkersDead(t *testing.T) {
	p := newPlace(t)
	a, b := p.work("--exec", "true"), p.work("--exec", "true")
	both := map[string]string{"a": a.metrics(), "b": b.metrics()}
	h := newHistory()
	h.scrapes(30, both)
	h.expect(t, "two workers")
	a.Kill()
	h.scrapes(30, map[string]string{"b": b.metrics()})
	h.expect(t, "one of two workers is dead")
	b.Kill()
	h.scrapes(4, nil)
	h.expect(t, "nobody for four minutes")
	h.scrapes(4, nil)
	h.expect(t, "nobody for eight minutes", "SemelNoWorkers")
	h.scrapes(24*60, nil)
	h.expect(t, "nobody for a day", "SemelNoWorkers")
	h.scrapes(10, map[string]string{"server": p.serve().metrics()})
	h.expect(t, "nobody, and the queue is known to be empty")
	p.run("send", "--queue", queue, "--n", "1")
	h.scrapes(10, map[string]string{"server": p.serve().metrics()})
	h.expect(t, "nobody, and a message waits", "SemelNoWorkers")
	h.scrapes(10, map[string]string{"c": p.work("--exec", "true").metrics()})
	h.expect(t, "another worker")
}

// TestDoubtRingsUntilItIsResolved: a worker dies in a run that must not be repeated. The alert rings until a person decides,
// however long that takes.
func TestDoubtRingsUntilItIsResolved(t *testing.T) {
	p := newPlace(t)
	p.run("send", "--queue", queue, "--n", "1")
	a := p.work("--takeover", "once", "--visibility", "1s", "--exec", "kill -9 $PPID; sleep 600")
	<-a.Done()
	b := p.work("--takeover", "once", "--visibility", "1s", "--exec", "true")
	b.says("parked_uncertain")
	h := newHistory()
	h.scrapes(2, map[string]string{"b": b.metrics()})
	h.expect(t, "the key was parked", "SemelOutcomeUnknown")
	h.scrapes(26*60, map[string]string{"b": b.metrics()})
	h.expect(t, "nobody decided for a day", "SemelDeadLettersWait", "SemelOutcomeUnknown", "SemelOutcomeUnknownOld")
	p.resolve()
	b.Kill()
	h.scrapes(2, map[string]string{"c": p.work("--exec", "true").metrics()})
	if slices.Contains(h.rings(t), "SemelOutcomeUnknown") {
		t.Error("it rings after the doubt was resolved")
	}
}

// resolve decides about the only uncertain key.
func (p *place) resolve() {
	p.Helper()
	list := p.run("records", "ls", "--store", queue, "--state", "UNCERTAIN", "-o", "jsonl")
	_, rest, _ := strings.Cut(list, `"key":"`)
	key, _, found := strings.Cut(rest, `"`)
	if !found || strings.Count(list, "\n") != 1 {
		p.Fatalf("want one uncertain key:\n%s", list)
	}
	p.run("records", "resolve", key, "--as", "failed", "--store", queue, "--yes")
}

// TestFM41_ParkedBySweepRings: a sweep parks an abandoned claim. No delivery and no dead letter reports it.
func TestFM41_ParkedBySweepRings(t *testing.T) {
	p := newPlace(t)
	p.run("send", "--queue", queue, "--n", "1")
	a := p.work("--visibility", "1s", "--exec", "kill -9 $PPID; sleep 600")
	<-a.Done()
	p.run("queue", "purge", "--queue", queue, "--yes")
	h := newHistory()
	h.scrapes(10, map[string]string{"worker": p.work("--exec", "true").metrics()})
	h.expect(t, "before the sweep")
	sweep := []string{"records", "sweep", "--store", queue, "--horizon", "1ms", "--yes", "-o", "json"}
	for end := time.Now().Add(timeout); !strings.Contains(p.run(sweep...), `"abandoned":1`); {
		if time.Now().After(end) {
			t.Fatal("the claim of a dead worker is not parked")
		}
	}
	h.scrapes(10, map[string]string{"worker": p.work("--exec", "true").metrics()})
	h.expect(t, "after the sweep", "SemelOutcomeUnknown")
	p.resolve()
	h.scrapes(2, map[string]string{"worker": p.work("--exec", "true").metrics()})
	h.expect(t, "after a person decided")
}

// TestOnePausedWorkerPagesNobody: the breaker of one worker is open. Of fifty it is no alert, of three a warning, and when it
// is all of them somebody is paged, for the downstream and not for the store.
func TestOnePausedWorkerPagesNobody(t *testing.T) {
	p := newPlace(t)
	p.run("send", "--queue", queue, "--n", "1")
	a := p.work("--breaker-open", "1h..1h", "--exec", "exit 69")
	paused := a.shows(`semel_paused{consumer="orders",queue="orders",reason="downstream"} 1`)
	healthy := p.work("--exec", "true").metrics()
	for _, c := range []struct {
		healthy int
		want    []string
	}{
		{49, nil},
		{2, []string{"SemelSomeWorkersPaused"}},
		{0, []string{"SemelDownstreamUnavailable"}},
	} {
		all := map[string]string{"paused": paused}
		for i := range c.healthy {
			all[fmt.Sprint("healthy-", i)] = healthy
		}
		h := newHistory()
		h.scrapes(10, all)
		h.expect(t, fmt.Sprintf("one of %d workers is paused", c.healthy+1), c.want...)
	}
}

// TestStoreDownIsNoDownstream: the store goes away from two workers, of which one has nothing to do and would not notice. The
// alert names the store; and one worker alone that does not reach it is a warning.
func TestStoreDownIsNoDownstream(t *testing.T) {
	p := newPlace(t)
	made, drop, err := server.CreateDatabase(t.Context(), server.Shared(t, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = drop(context.WithoutCancel(t.Context())) })
	p.run("migrate", "--store", made)
	c := p.work("--store", made, "--exec", "true")
	healthy := c.metrics()
	c.Kill() // it would take the message

	u, err := url.Parse(made)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := server.NewProxy(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	u.Host = proxy.Addr()
	a, b := p.work("--store", u.String(), "--exec", "true"), p.work("--store", u.String(), "--exec", "true")
	proxy.Refuse(true)
	proxy.Cut()
	down := map[string]string{"a": a.metrics(), "b": b.metrics()}
	h := newHistory()
	h.scrapes(10, down)
	h.expect(t, "nobody has anything to do", "SemelStoreUnreachable")

	h = newHistory()
	h.scrapes(10, map[string]string{"a": down["a"], "healthy": healthy})
	h.expect(t, "another worker reaches the store")

	// The same on a store that is not asked by metrics: what a worker notices has to do.
	b.Kill()
	p.run("send", "--queue", queue, "--n", "1")
	paused := a.shows(`semel_paused{consumer="orders",queue="orders",reason="store"} 1`)
	h = newHistory()
	h.scrapes(10, map[string]string{"a": strings.ReplaceAll(paused, "\nsemel_store_up", "\nnot_asked")})
	h.expect(t, "a worker that has something to do", "SemelStoreUnreachable")
}

// TestForgottenAuditRings: an audit that found nothing counts for a day. After that the alert fires, whether its file exists
// or not.
func TestForgottenAuditRings(t *testing.T) {
	p := newPlace(t)
	p.run("send", "--queue", queue, "--n", "1")
	p.run("work", "--queue", queue, "--exec", "true", "--until-empty")
	audit := func() string {
		list := p.run("records", "ls", "--store", queue, "-o", "jsonl")
		_, rest, _ := strings.Cut(list, `"key":"`)
		key, _, _ := strings.Cut(rest, `"`)
		if err := os.WriteFile(p.file("effects.jsonl"), fmt.Appendf(nil, `{"key":%q}`+"\n", key), 0o600); err != nil {
			t.Fatal(err)
		}
		p.run("audit", "--store", queue, "--effects", "effects.jsonl", "--grace", "0s", "--metrics", "audit.prom")
		b, err := os.ReadFile(p.file("audit.prom"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	h := newHistory()
	h.scrapes(25*60, map[string]string{"node": audit()})
	h.expect(t, "an audit yesterday")
	gone := &history{h.began, h.minutes, maps.Clone(h.series)}
	h.scrapes(2*60, map[string]string{"node": audit()})
	h.expect(t, "the audit of today was forgotten", "SemelAuditMissing")
	gone.scrapes(2*60, nil)
	gone.expect(t, "the file is gone", "SemelAuditMissing")
	h.began = h.began.Add(-27 * 60 * 60 * 1e9) // the next audit is that of now
	h.scrapes(1, map[string]string{"node": audit()})
	h.expect(t, "the next audit ran")
}

// TestOneLostLeaseIsNoise: a worker that stood still for longer than its lease lost one run, which did no harm.
func TestOneLostLeaseIsNoise(t *testing.T) {
	p := newPlace(t)
	p.run("send", "--queue", queue, "--n", "1")
	a := p.work("--visibility", "1s", "--exec", "touch begun; until test -e go; do sleep 0.02; done")
	p.waitFor("begun")
	before := a.metrics()
	if err := a.Freeze(); err != nil {
		t.Fatal(err)
	}
	b := p.work("--visibility", "1s", "--exec", "true")
	b.says(`"msg":"executed"`)
	if err := a.Thaw(); err != nil {
		t.Fatal(err)
	}
	after := a.shows(`semel_lease_lost_total{consumer="orders",queue="orders"} 1`)
	h := newHistory()
	h.scrapes(20, map[string]string{"a": before})
	h.scrapes(5, map[string]string{"a": after})
	h.expect(t, "one lease was lost")
}
