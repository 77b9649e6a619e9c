package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semel-dev/semel/adapters/nats/natstest"
	"github.com/semel-dev/semel/driver"
)

func TestOpen_Refuses(t *testing.T) {
	servers(t, func(t *testing.T, url string) {
		nc := natstest.Connect(t, url)
		q := fresh(t, nc, CreateOptions{})
		for name, c := range map[string]struct {
			config jetstream.ConsumerConfig
			o      Options
			want   string
		}{
			"ack none":    {jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, Options{}, "ack policy"},
			"ack all":     {jetstream.ConsumerConfig{AckPolicy: jetstream.AckAllPolicy}, Options{}, "ack policy"},
			"max deliver": {jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 3}, Options{}, "max_deliver=accept"},
			"accepted":    {jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 3}, Options{AcceptMaxDeliver: true}, ""},
			"headers":     {jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, HeadersOnly: true}, Options{}, "headers_only"},
		} {
			stream := q.stream + "_" + strings.ReplaceAll(name, " ", "_")
			s, err := q.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{stream}, Storage: jetstream.MemoryStorage})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = q.js.DeleteStream(context.Background(), stream) })
			c.config.Durable = DefaultConsumer
			if _, err := s.CreateConsumer(t.Context(), c.config); err != nil {
				t.Fatal(err)
			}
			opened, err := Open(t.Context(), nc, stream, c.o)
			if c.want == "" && (err != nil || !opened.Features().Redrives || opened.Features().Durable) {
				t.Errorf("%s: %v", name, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: the error is %v, want one that names %q", name, err, c.want)
			}
		}
	})
}

func TestOpen_NamesWhatIsMissing(t *testing.T) {
	url := natstest.Start(t, natstest.Options{}).ClientURL()
	nc := natstest.Connect(t, url)
	q := fresh(t, nc, CreateOptions{})
	without := natstest.Connect(t, natstest.Start(t, natstest.Options{NoJetStream: true}).ClientURL())
	limited := natstest.Connect(t, natstest.Start(t, natstest.Options{Users: []*natsserver.User{{
		Username: "app", Password: "secret", Permissions: &natsserver.Permissions{
			Publish: &natsserver.SubjectPermission{Allow: []string{"orders.>"}},
		},
	}}}).ClientURL(), nats.UserInfo("app", "secret"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	short := Options{CallTimeout: 500 * time.Millisecond}
	for name, c := range map[string]struct {
		nc       *nats.Conn
		stream   string
		o        Options
		want     string
		notFound bool
	}{
		"no stream named": {nc, "", Options{}, "queue=", false},
		"bad name":        {nc, "a.b", Options{}, "queue=", false},
		"bad consumer":    {nc, q.stream, Options{Consumer: "a b"}, "consumer=", false},
		"no stream":       {nc, "NOBODY", Options{}, "queue=", true},
		"no consumer":     {nc, q.stream, Options{Consumer: "nobody"}, "consumer=", true},
		"subject":         {nc, q.stream, Options{Subject: "other"}, "subject=", false},
		"no JetStream":    {without, "A", short, "-js", false},
		"no domain":       {nc, q.stream, Options{Domain: "hub", CallTimeout: short.CallTimeout}, "domain=", false},
		"no permission":   {limited, "A", short, "$JS.API.>", false},
	} {
		_, err := Open(t.Context(), c.nc, c.stream, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNotFound) != c.notFound {
			t.Errorf("%s: the error is %v, want one that names %q", name, err, c.want)
		}
	}
}

// TestFM64_ConsumerDeleted: a receive that waits ends with an error that names the consumer, and the next ones until it is
// made anew.
func TestFM64_ConsumerDeleted(t *testing.T) {
	servers(t, func(t *testing.T, url string) {
		q := fresh(t, natstest.Connect(t, url), CreateOptions{Options: Options{Wait: 20 * time.Second}})
		got := make(chan error, 1)
		go func() {
			_, err := q.Receive(t.Context(), 10)
			got <- err
		}()
		c, err := q.js.Consumer(t.Context(), q.stream, q.o.Consumer)
		for err == nil && c.CachedInfo().NumWaiting == 0 {
			_, err = c.Info(t.Context())
		}
		if err == nil {
			err = q.js.DeleteConsumer(t.Context(), q.stream, q.o.Consumer)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := <-got; err == nil || !strings.Contains(err.Error(), `"semel"`) {
			t.Errorf("the waiting receive returned %v", err)
		}
		if _, err := q.Receive(t.Context(), 10); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), `"semel"`) {
			t.Errorf("the next one returned %v", err)
		}
		if err := Create(t.Context(), q.nc, q.stream, CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		send(t, q, "m")
		settle(t, q, driver.Applied, driver.Settlement{Receipt: one(t, q).Receipt})
	})
}

// TestFM26_MaxDeliverBehindOurBack: somebody sets MaxDeliver while a worker runs. The message that reaches it is delivered to
// nobody, so Receive returns an error instead of waiting for it.
func TestFM26_MaxDeliverBehindOurBack(t *testing.T) {
	servers(t, func(t *testing.T, url string) {
		q := fresh(t, natstest.Connect(t, url), CreateOptions{Options: Options{Wait: 200 * time.Millisecond}})
		send(t, q, "m")
		d := one(t, q)
		c := q.is.Load().consumer
		c.MaxDeliver = 1
		if _, err := q.js.UpdateConsumer(t.Context(), q.stream, c); err != nil {
			t.Fatal(err)
		}
		settle(t, q, driver.Applied, driver.Settlement{Receipt: d.Receipt, Action: driver.Retry})
		if ds, err := q.Receive(t.Context(), 1); err != nil || len(ds) != 0 || messages(t, q) != 1 {
			t.Errorf("the server delivers %d (%v): a MaxDeliver that is reached loses nothing any more, so accept it", len(ds), err)
		}
		q.o.recheck = 1 // a minute later
		if _, err := q.Receive(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "MaxDeliver 1") {
			t.Errorf("receive returned %v, want an error that names MaxDeliver", err)
		}
		c.MaxDeliver = -1
		if _, err := q.js.UpdateConsumer(t.Context(), q.stream, c); err != nil {
			t.Fatal(err)
		}
		send(t, q, "m2")
		settle(t, q, driver.Applied, driver.Settlement{Receipt: one(t, q).Receipt})
	})
}

// TestLimitsStream: two consumers of a stream that keeps its messages are two queues, and neither may purge.
func TestLimitsStream(t *testing.T) {
	servers(t, func(t *testing.T, url string) {
		nc := natstest.Connect(t, url)
		q := fresh(t, nc, CreateOptions{})
		stream := q.stream + "_LOG"
		_, err := q.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = q.js.DeleteStream(context.Background(), stream) })
		open := func(consumer, subject string) *Queue {
			o := Options{Consumer: consumer, Subject: subject}
			if err := Create(t.Context(), nc, stream, CreateOptions{Options: o}); err != nil {
				t.Fatal(err)
			}
			q, err := Open(t.Context(), nc, stream, o)
			if err != nil {
				t.Fatal(err)
			}
			return q
		}
		mails, all := open("mails", stream+".mail"), open("all", "")
		for i := range 20 {
			send(t, mails, fmt.Sprint("m-", i))
			if s, err := mails.Stats(t.Context()); err != nil || s.Empty() {
				t.Fatalf("after message %d was sent the queue says %+v, %v", i, s, err)
			}
			settle(t, mails, driver.Applied, driver.Settlement{Receipt: one(t, mails).Receipt})
			if s, err := mails.Stats(t.Context()); err != nil || !s.Empty() {
				t.Errorf("after message %d was acknowledged the queue says %+v, %v", i, s, err)
			}
		}
		if err := all.Send(t.Context(), driver.Message{ID: "x"}); err == nil || !strings.Contains(err.Error(), "subject=") {
			t.Errorf("send without a subject: %v", err)
		}
		if err := all.Send(t.Context(), driver.Message{ID: "x", Headers: map[string]string{"nats-subject": stream + ".web"}}); err != nil {
			t.Error(err)
		}
		if s, err := all.Stats(t.Context()); err != nil || s.Visible != 21 {
			t.Errorf("the other consumer has %+v, %v, want 21", s, err)
		}
		if s, err := mails.Stats(t.Context()); err != nil || !s.Empty() {
			t.Errorf("the first consumer has %+v, %v, want none", s, err)
		}
		if ds, err := all.Peek(t.Context(), 30); err != nil || len(ds) != 21 || ds[20].Header("Nats-Subject") != stream+".web" {
			t.Errorf("peek shows %d messages, %v", len(ds), err)
		}
		if _, err := all.Purge(t.Context()); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("purge: %v", err)
		}
		if mails.Features().Name == all.Features().Name {
			t.Error("two consumers of a stream are one queue")
		}
	})
}

// TestSend_Refuses what the server would drop or cannot take, before anything is sent.
func TestSend_Refuses(t *testing.T) {
	nc := natstest.Connect(t, natstest.Start(t, natstest.Options{}).ClientURL())
	q := fresh(t, nc, CreateOptions{Retention: time.Hour})
	for name, m := range map[string]driver.Message{
		"too large":      {Body: make([]byte, nc.MaxPayload())},
		"due too late":   {Delay: 2 * time.Hour},
		"header no text": {Headers: map[string]string{"h": "\xff"}},
	} {
		if err := q.Send(t.Context(), driver.Message{ID: "fine"}, m); err == nil || !strings.Contains(err.Error(), "message 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := messages(t, q); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
	if f := q.Features(); f.Retention != time.Hour || f.Horizon != time.Hour {
		t.Errorf("retention %v, horizon %v", f.Retention, f.Horizon)
	}
}

// TestHeaders: what a header line cannot keep arrives all the same, and no header of a sender commands the server.
func TestHeaders(t *testing.T) {
	servers(t, func(t *testing.T, url string) {
		q := fresh(t, natstest.Connect(t, url), CreateOptions{})
		sent := driver.Message{ID: "ключ\n1\xff", Group: " 100% ", Body: []byte("b"), Headers: map[string]string{
			"plain": "text", "Plain": "another", "with space": "v", "empty": "", "lines": "a\r\nb: c", "utf8": "größe", "blank": " x ",
			"Nats-Rollup": "all", "nats-msg-id": "same", "Nats-Expected-Stream": "other", "Semel-Id": "forged", "Status": "503", "a:b": "c",
		}}
		for range 2 { // one Nats-Msg-Id would drop the second
			if err := q.Send(t.Context(), sent); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			d := one(t, q)
			if d.ID != sent.ID || d.Group != sent.Group || len(d.Headers) != len(sent.Headers)+1 || d.Headers["Nats-Subject"] != q.stream {
				t.Errorf("received %q, group %q, headers %q", d.ID, d.Group, d.Headers)
			}
			for k, v := range sent.Headers {
				if d.Headers[k] != v {
					t.Errorf("header %q came as %q, want %q", k, d.Headers[k], v)
				}
			}
			settle(t, q, driver.Applied, driver.Settlement{Receipt: d.Receipt})
		}
	})
}

// TestForeignMessages have the ID of Nats-Msg-Id, or one of stream, creation and sequence. What looks like a header of semel and
// cannot be read stays as it was sent.
func TestForeignMessages(t *testing.T) {
	nc := natstest.Connect(t, natstest.Start(t, natstest.Options{}).ClientURL())
	q := fresh(t, nc, CreateOptions{})
	for _, id := range []string{"", "theirs"} {
		m := &nats.Msg{Subject: q.stream, Data: []byte("x"), Header: nats.Header{}}
		if id != "" {
			m.Header.Set(nats.MsgIdHdr, id)
			m.Header.Set(headerGroup, "50%")
			m.Header.Set(headerRest, "bnVsbA==") // null
		}
		if _, err := q.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	first, second := one(t, q), one(t, q)
	if want := fmt.Sprintf("nats|%s|%d|1", q.stream, q.is.Load().created.UnixNano()); first.ID != want || second.ID != "theirs" {
		t.Errorf("the ids are %q and %q, want %q and theirs", first.ID, second.ID, want)
	}
	if second.Group != "50%" || second.Headers["Nats-Msg-Id"] != "theirs" {
		t.Errorf("the second has group %q, headers %q", second.Group, second.Headers)
	}
}

// TestDurability: what is said of acknowledged messages is what the server is set to.
func TestDurability(t *testing.T) {
	for name, c := range map[string]struct {
		always, monitor, asserted bool
		durable                   bool
		caveat                    string
	}{
		"not visible":         {false, false, false, false, "monitor="},
		"default":             {false, true, false, false, "every 2m"},
		"always":              {true, true, false, true, ""},
		"always, not visible": {true, false, false, false, "monitor="},
		"asserted":            {true, false, true, true, ""},
	} {
		s := natstest.Start(t, natstest.Options{SyncAlways: c.always, Monitor: c.monitor})
		o := Options{SyncAlways: c.asserted}
		if c.monitor {
			o.Monitor = "http://" + s.MonitorAddr().String()
		}
		f := fresh(t, natstest.Connect(t, s.ClientURL()), CreateOptions{Options: o}).Features()
		if f.Durable != c.durable || (c.caveat == "") != (len(f.Caveats) == 0) || len(f.Caveats) > 0 && !strings.Contains(f.Caveats[0], c.caveat) {
			t.Errorf("%s: durable %v, %q", name, f.Durable, f.Caveats)
		}
	}
}

// TestFM11_ForeignReply: what another subscriber of the subject replies to a message is no acknowledgement.
func TestFM11_ForeignReply(t *testing.T) {
	nc := natstest.Connect(t, natstest.Start(t, natstest.Options{}).ClientURL())
	q := fresh(t, nc, CreateOptions{Options: Options{CallTimeout: 500 * time.Millisecond}})
	if err := q.js.DeleteStream(t.Context(), q.stream); err != nil { // so that nothing acknowledges
		t.Fatal(err)
	}
	for _, reply := range []string{"+OK", `{"stream":"OTHER","seq":1}`, `{"error":{"code":503,"description":"no space"},"stream":"` + q.stream + `","seq":0}`} {
		sub, err := nc.Subscribe(q.stream, func(m *nats.Msg) { _ = m.Respond([]byte(reply)) })
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Send(t.Context(), driver.Message{ID: "m"}); err == nil {
			t.Errorf("a message is sent because somebody replied %s", reply)
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Send(t.Context(), driver.Message{ID: "m"}); err == nil || !strings.Contains(err.Error(), "nobody serves it") {
		t.Errorf("a message to a stream that is gone: %v", err)
	}
	if err := Create(t.Context(), nc, q.stream, CreateOptions{}); err != nil { // the cleanup removes it
		t.Fatal(err)
	}
}
