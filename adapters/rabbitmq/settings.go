package rabbitmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/driver"
)

// Settings are how the server keeps a queue.
type Settings struct {
	// Version is the server's.
	Version string
	// Type is quorum, classic or stream; "" if Unread.
	Type                string
	Durable, AutoDelete bool
	// Args are the arguments and policies by their names in policies ("delivery-limit").
	Args map[string]any
	// Unread is why the arguments are unknown; nil if they are known. Open reads them by declaring the queue again, which needs
	// the right configure.
	Unread error
	// Managed: the rest was read from the management plugin, and Args has the policies.
	Managed bool
	// Members are the nodes that keep a quorum queue.
	Members []string
	// AutoAck is how many consumers receive messages without acking them.
	AutoAck int
}

// number returns a numeric setting, or 0.
func (s *Settings) number(name string) int64 {
	switch n := s.Args[name].(type) {
	case int64:
		return n
	case float64: // JSON
		return int64(n)
	}
	return 0
}

func (s *Settings) text(name string) string {
	t, _ := s.Args[name].(string)
	return t
}

// TTL is how long the queue keeps a message. 0 = forever.
func (s *Settings) TTL() time.Duration {
	return time.Duration(s.number("message-ttl")) * time.Millisecond
}

// DeliveryLimit is how often a message is redelivered before the server drops it or moves it to a dead-letter exchange. 0 = the
// queue has no limit.
func (s *Settings) DeliveryLimit() int64 {
	if _, set := s.Args["delivery-limit"]; !set && s.Type == "quorum" && major(s.Version) >= 4 {
		return 20
	}
	return max(s.number("delivery-limit"), 0)
}

// DeadLetters reports that the queue has a dead-letter exchange, the default one included.
func (s *Settings) DeadLetters() bool {
	_, set := s.Args["dead-letter-exchange"]
	return set
}

func major(version string) int {
	n, _ := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	return n
}

// durability reports whether accepted messages survive, and what loses them.
func (s *Settings) durability() (durable bool, caveats []string) {
	if s.Unread != nil {
		return true, []string{"the arguments of the queue could not be read (the user lacks the right configure): whether it loses messages is unknown"}
	}
	limit, lost := s.DeliveryLimit(), 0
	for _, c := range []struct {
		bad   bool
		loses bool
		text  string
	}{
		{!s.Durable, true, "the queue is not durable: it ends with the server, and its messages with it"},
		{s.AutoDelete, true, "the queue is auto-delete: it is deleted with its messages when the last worker disconnects"},
		{s.number("expires") > 0, true, "the queue has x-expires: it is deleted with its messages when no worker has been connected for " +
			driver.DurationText(time.Duration(s.number("expires"))*time.Millisecond)},
		{s.TTL() > 0, true, "the queue has x-message-ttl: messages that wait longer than " + driver.DurationText(s.TTL()) + " are dropped unhandled"},
		{s.number("max-length")+s.number("max-length-bytes") > 0 && !strings.HasPrefix(s.text("overflow"), "reject-publish"), true,
			"the queue has a max-length and drops its oldest messages when it is full: set x-overflow to reject-publish"},
		{limit > 0 && !s.DeadLetters(), true, fmt.Sprintf("the queue has a delivery limit of %d and no dead-letter exchange: a message is dropped "+
			"when workers disconnected that often while it was prefetched, without a handler run: set x-delivery-limit to -1 (on RabbitMQ 3, leave it out)", limit)},
		{limit > 0 && s.DeadLetters() && s.text("dead-letter-strategy") != "at-least-once", true, fmt.Sprintf("the queue has a delivery limit of %d, and its "+
			"dead-letter exchange can lose messages: set x-dead-letter-strategy to at-least-once and x-overflow to reject-publish", limit)},
		{limit > 0 && s.DeadLetters() && s.text("dead-letter-strategy") == "at-least-once", false, fmt.Sprintf("the queue moves a message that was delivered "+
			"%d times to its dead-letter exchange, where semel does not look", limit)},
		{s.Type == "classic", false, "the queue is classic: one node keeps it, without a count of deliveries, and messages that producers do not send " +
			"as persistent are lost when the server restarts"},
	} {
		if c.bad {
			caveats = append(caveats, c.text)
		}
		if c.bad && c.loses {
			lost++
		}
	}
	return lost == 0, caveats
}

// readSettings reads the arguments of the queue, and what the management plugin adds.
func (q *Queue) readSettings(ctx context.Context) error {
	conn, err := q.in.get()
	if err != nil {
		return err
	}
	q.is.Version, _ = conn.Properties["version"].(string)
	if _, err := q.look(q.name); err != nil {
		return err
	}
	if err := q.probe(); err != nil {
		return err
	}
	if q.o.Management != "" {
		return q.manage(ctx, conn.Config.Vhost)
	}
	return nil
}

// inequivalent is how the server refuses to declare a queue that exists with other arguments.
var inequivalent = regexp.MustCompile(`inequivalent arg '([^']+)' .* but current is (?:none|(?:the value )?'(.*?)'(?: of type '(\w+)')?)"?$`)

// probe reads the arguments of a queue that exists. The server shows them only in refusals: one declares the queue, and each
// refusal names an argument with its value, until the declaration is equal.
func (q *Queue) probe() error {
	is := &q.is
	is.Durable = true
	args := amqp.Table{"x-queue-type": "quorum"}
	for range 20 {
		err := q.in.with(func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q.name, is.Durable, is.AutoDelete, false, false, args)
			return err
		})
		if code(err) == amqp.AccessRefused {
			is.Unread = err
			return nil
		}
		if err == nil {
			is.Args = map[string]any{}
			for name, v := range args {
				is.Args[strings.TrimPrefix(name, "x-")] = v
			}
			is.Type = "classic"
			if t := is.text("queue-type"); t != "" {
				is.Type = t
			}
			return nil
		}
		e := (*amqp.Error)(nil)
		if !errors.As(err, &e) {
			return err
		}
		m := inequivalent.FindStringSubmatch(e.Reason)
		if m == nil {
			return err
		}
		switch name, value := m[1], m[2]; {
		case name == "durable":
			is.Durable = value == "true"
		case name == "auto_delete":
			is.AutoDelete = value == "true"
		case strings.HasSuffix(e.Reason, "current is none"):
			delete(args, name)
		case m[3] == "bool":
			args[name] = value == "true"
		case m[3] == "" || m[3] == "longstr":
			args[name] = value
		default:
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return fmt.Errorf("read the argument %s: %w", name, err)
			}
			args[name] = n
		}
	}
	return errors.New("read the arguments: the server refuses every declaration")
}

// managed is what the management plugin reports of a queue.
type managed struct {
	Policy    map[string]any `json:"effective_policy_definition"`
	Members   []string       `json:"members"`
	Consumers []struct {
		Ack bool `json:"ack_required"`
	} `json:"consumer_details"`
}

// manage reads what the management plugin reports.
func (q *Queue) manage(ctx context.Context, vhost string) error {
	base := strings.TrimSuffix(q.o.Management, "/") + "/api/queues/"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+url.PathEscape(vhost)+"/"+url.PathEscape(q.name), nil)
	if err != nil {
		return errors.New("Options.Management (management= in a URL) is no URL; Try: http://user:password@host:15672")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask the management plugin: %w", err)
	}
	defer res.Body.Close()
	var m managed
	if err := json.NewDecoder(res.Body).Decode(&m); err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the management plugin at %s: it responded %s; Try: check the address and the user's tag management", req.URL.Host, res.Status)
	}
	q.is.Managed, q.is.Members = true, m.Members
	for _, c := range m.Consumers {
		if !c.Ack {
			q.is.AutoAck++
		}
	}
	if q.is.Args == nil {
		q.is.Args = map[string]any{}
	}
	for name, v := range m.Policy { // of two numbers the server takes the smaller one that is a limit
		was, set := q.is.Args[name].(int64)
		if n, ok := v.(float64); !set || ok && (was < 0 || n >= 0 && int64(n) < was) {
			q.is.Args[name] = v
		}
	}
	return nil
}
