package rabbitmq

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest/server"
)

// declare declares a queue with the given arguments, which is deleted when the test ends.
func declare(t *testing.T, dial Dial, durable, autoDelete bool, args amqp.Table) string {
	t.Helper()
	name := "semel-test-" + driver.NewMessageID()
	l := link{dial: dial}
	t.Cleanup(func() {
		_ = l.close()
		if err := Delete(context.Background(), dial, name); err != nil {
			t.Log(err)
		}
	})
	if err := l.with(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, durable, autoDelete, false, false, args)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestFM17_SettingsThatLoseMessages: each setting with which the server drops messages that no handler saw is found without the
// management plugin, and the queue is not durable.
func TestFM17_SettingsThatLoseMessages(t *testing.T) {
	dial := shared(t)
	q := func(args amqp.Table) amqp.Table {
		args["x-queue-type"] = "quorum"
		return args
	}
	for name, c := range map[string]struct {
		transient, autoDelete bool
		args                  amqp.Table
		durable, redrives     bool
		caveat                string // "" = none
	}{
		"sound":            {args: q(amqp.Table{}), durable: true},
		"full, refuses":    {args: q(amqp.Table{"x-max-length": 5, "x-overflow": "reject-publish"}), durable: true},
		"limit":            {args: q(amqp.Table{"x-delivery-limit": 3}), redrives: true, caveat: "delivery limit of 3 and no dead-letter exchange"},
		"limit, exchange":  {args: q(amqp.Table{"x-delivery-limit": 3, "x-dead-letter-exchange": "amq.fanout"}), redrives: true, caveat: "can lose messages"},
		"limit, confirmed": {args: q(amqp.Table{"x-delivery-limit": 3, "x-dead-letter-exchange": "amq.fanout", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}), durable: true, redrives: true, caveat: "delivered 3 times"},
		"TTL":              {args: q(amqp.Table{"x-message-ttl": 60000}), caveat: "longer than 1m"},
		"expires":          {args: q(amqp.Table{"x-expires": 3600000}), caveat: "for 1h"},
		"max length":       {args: q(amqp.Table{"x-max-length": 5}), caveat: "max-length"},
		"max bytes":        {args: q(amqp.Table{"x-max-length-bytes": 5000}), caveat: "max-length"},
		"single consumer":  {args: q(amqp.Table{"x-single-active-consumer": true}), durable: true},
		"classic":          {durable: true, caveat: "is classic"},
		"not durable":      {transient: true, caveat: "not durable"},
		"auto-delete":      {autoDelete: true, caveat: "auto-delete"},
		"lazy, priorities": {args: amqp.Table{"x-max-priority": 3, "x-queue-mode": "lazy"}, durable: true, caveat: "is classic"},
	} {
		opened := openQueue(t, dial, declare(t, dial, !c.transient, c.autoDelete, c.args), Options{})
		f := opened.Features()
		if f.Durable != c.durable || f.Redrives != c.redrives || (len(f.Caveats) == 0) != (c.caveat == "") ||
			!strings.Contains(strings.Join(f.Caveats, "\n"), c.caveat) {
			t.Errorf("%s: durable %v, redrives %v, caveats %q", name, f.Durable, f.Redrives, f.Caveats)
		}
		for arg, want := range c.args {
			got := opened.is.Args[strings.TrimPrefix(arg, "x-")]
			if n, ok := want.(int); ok {
				want = int64(n)
			}
			if got != want {
				t.Errorf("%s: %s is %v (%T), want %v", name, arg, got, got, want)
			}
		}
	}
}

// TestFM17_DeliveryLimitOf4: RabbitMQ 4 has a limit unless the queue says otherwise. Create sets none there.
func TestFM17_DeliveryLimitOf4(t *testing.T) {
	for _, c := range []struct {
		version, kind string
		args          map[string]any
		want          int64
	}{
		{"3.13.7", "quorum", nil, 0}, {"4.1.0", "quorum", nil, 20}, {"4.1.0", "classic", nil, 0},
		{"4.1.0", "quorum", map[string]any{"delivery-limit": int64(-1)}, 0}, {"3.10.8", "quorum", map[string]any{"delivery-limit": int64(7)}, 7},
		{"4.1.0", "quorum", map[string]any{"delivery-limit": 7.0}, 7},
	} {
		s := Settings{Version: c.version, Type: c.kind, Args: c.args}
		if got := s.DeliveryLimit(); got != c.want {
			t.Errorf("%+v: the limit is %d", c, got)
		}
	}
	if _, set := (CreateOptions{}).args("3.10.8")["x-delivery-limit"]; set {
		t.Error("a limit of -1 on RabbitMQ 3")
	}
	if got := (CreateOptions{}).args("4.0.1")["x-delivery-limit"]; got != -1 {
		t.Errorf("the limit on RabbitMQ 4 is %v", got)
	}
}

// TestFM17_Policies: what policies set is read from the management plugin.
func TestFM17_Policies(t *testing.T) {
	dial := shared(t)
	name := fresh(t, dial, CreateOptions{})
	status, body := http.StatusOK, `{"effective_policy_definition":{"delivery-limit":3,"message-ttl":60000},"members":["rabbit@a"],
		"consumer_details":[{"ack_required":false},{"ack_required":true}]}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); r.URL.EscapedPath() != "/api/queues/%2F/"+name || user != "shop" || password != "s3cret" {
			t.Errorf("asked for %s as %q", r.URL.EscapedPath(), user)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer s.Close()
	base, _ := url.Parse(s.URL)
	base.User = url.UserPassword("shop", "s3cret")
	q := openQueue(t, dial, name, Options{Management: base.String()})
	is, f := q.Settings(), q.Features()
	if !is.Managed || is.AutoAck != 1 || len(is.Members) != 1 || is.DeliveryLimit() != 3 || f.Durable || !f.Redrives || f.Retention != time.Minute {
		t.Errorf("settings %+v, features %+v", is, f)
	}
	status = http.StatusUnauthorized
	if _, err := Open(t.Context(), dial, name, Options{Management: base.String()}); err == nil || !strings.Contains(err.Error(), "tag management") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a management plugin that refuses: %v", err)
	}
}

func TestOpen_Refuses(t *testing.T) {
	dial := shared(t)
	stream := declare(t, dial, true, false, amqp.Table{"x-queue-type": "stream"})
	owned, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = owned.Close() }()
	ch, err := owned.Channel()
	if err != nil {
		t.Fatal(err)
	}
	exclusive, err := ch.QueueDeclare("", false, false, true, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	recovering := func() (*amqp.Connection, error) {
		return amqp.DialConfig(server.Shared(t, "rabbitmq"), amqp.Config{Recovery: &amqp.Recovery{}})
	}
	for name, c := range map[string]struct {
		dial     Dial
		queue    string
		want     string
		notFound bool
	}{
		"missing":   {dial, "semel-test-nobody", "semel queue create", true},
		"stream":    {dial, stream, "declare a quorum queue", false},
		"exclusive": {dial, exclusive.Name, "not exclusive", false},
		"recovery":  {recovering, stream, "leave amqp.Config.Recovery out", false},
		"no server": {dialer("amqp://127.0.0.1:1/"), "q", "connect", false},
	} {
		_, err := Open(t.Context(), c.dial, c.queue, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNotFound) != c.notFound {
			t.Errorf("%s: the error is %v, want one that names %q", name, err, c.want)
		}
	}
}

// TestWire: properties and headers of other producers arrive as text, and what RabbitMQ would interpret travels apart.
func TestWire(t *testing.T) {
	q := &Queue{name: "q"}
	w := q.unpack(amqp.Delivery{
		ContentType: "application/json", CorrelationId: "c-1", MessageId: "m", Headers: amqp.Table{
			"n": int32(5), "b": true, "nothing": nil, "when": time.Unix(60, 0), "bytes": []byte("x"), "list": []any{"a", int64(1)},
			"x-delivery-count": int64(2), headerCount: int64(3), "x-death": []any{}, "x-first-death-queue": "d", headerDue: int64(1500),
		},
	})
	m, due, count := w.msg, w.due, w.count
	want := map[string]string{
		"content-type": "application/json", "correlation-id": "c-1", "n": "5", "b": "true", "nothing": "", "when": "1970-01-01T00:01:00Z",
		"bytes": "x", "list": `["a",1]`,
	}
	for k, v := range want {
		if m.Headers[k] != v {
			t.Errorf("header %s is %q, want %q", k, m.Headers[k], v)
		}
	}
	if len(m.Headers) != len(want) || count != 5 || due.UnixMilli() != 1500 || m.ID != "m" {
		t.Errorf("message %+v, due %v, count %d", m, due, count)
	}
	dial := shared(t)
	sent := driver.Message{ID: "i", Group: "g", Body: []byte("b"), Headers: map[string]string{
		"CC": "other", "BCC": "other", "type": "t", "reply-to": strings.Repeat("r", 300), "x-semel-due": "soon", "x-death": "d",
		strings.Repeat("n", 300): "long", "ü": "ü", "empty": "", "app-id": "",
	}}
	real := openQueue(t, dial, fresh(t, dial, CreateOptions{}), Options{})
	if err := real.Send(t.Context(), sent); err != nil {
		t.Fatal(err)
	}
	got := one(t, real)
	for k, v := range sent.Headers {
		if have, ok := got.Headers[k]; !ok || have != v {
			t.Errorf("header %q arrived as %q", k, have)
		}
	}
	if len(got.Headers) != len(sent.Headers) || got.Group != "g" || !bytes.Equal(got.Body, sent.Body) {
		t.Errorf("received %+v", got.Message)
	}
	for name, m := range map[string]driver.Message{
		"takes 255": {ID: strings.Repeat("i", 256)},
		"headers":   {ID: "i", Headers: map[string]string{"h": strings.Repeat("x", 200_000)}},
		"UTF-8":     {ID: "i", Headers: map[string]string{"h": "\xff"}},
	} {
		if err := real.Send(t.Context(), m); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("a message with a fault in %s: %v", name, err)
		}
	}
	if err := real.Send(t.Context(), driver.Message{ID: "after"}); err != nil {
		t.Errorf("a send after refused ones: %v", err)
	}
}
