package sqslocal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// ParseFault reads NAME[@OPERATION[+OPERATION…]]=RATE|next:N|off[,by=DURATION].
func ParseFault(text string) (name string, f Fault, err error) {
	head, rest, ok := strings.Cut(text, "=")
	if !ok {
		return "", f, output.Usage("fault %q has no value", text).WithHint("%s=0.2, or %s=next:3", text, text)
	}
	name, ops, limited := strings.Cut(head, "@")
	if limited {
		f.Operations = strings.Split(ops, "+")
	}
	for i, part := range strings.Split(rest, ",") {
		by, isBy := strings.CutPrefix(part, "by=")
		next, isNext := strings.CutPrefix(part, "next:")
		switch {
		case isBy && i > 0:
			err = f.By.UnmarshalText([]byte(by))
		case i > 0:
			err = fmt.Errorf("%q is unknown behind the comma", part)
		case isNext:
			f.Next, err = strconv.Atoi(next)
		case part == "off":
		default:
			f.Rate, err = strconv.ParseFloat(part, 64)
		}
		if err != nil {
			return "", f, output.Usage("fault %q: %w", text, err).WithHint("NAME=0.2, NAME=next:3, NAME=off, NAME@DeleteMessage=0.2, delay=0.2,by=2s")
		}
	}
	return name, f, f.check(name)
}

// ParseFaults reads several: the last of one name counts.
func ParseFaults(texts []string) (map[string]Fault, error) {
	all := map[string]Fault{}
	for _, text := range texts {
		name, f, err := ParseFault(text)
		if err != nil {
			return nil, err
		}
		all[name] = f
	}
	return all, nil
}

// UnmarshalJSON reads a fault: a number is its rate, null takes it away, an object has all of it.
func (f *Fault) UnmarshalJSON(b []byte) error {
	*f = Fault{}
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] != '{' {
		return json.Unmarshal(b, &f.Rate)
	}
	type plain Fault
	return strict(bytes.NewReader(b), (*plain)(f))
}

// strict decodes one value whose members are all known.
func strict(r io.Reader, into any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return fmt.Errorf("something follows the value, byte %d", d.InputOffset())
	}
	return nil
}

// NewQueue is a queue that is made at the start.
type NewQueue struct {
	Name string
	// Dead is the queue for what was received Receives times; "" = none. If it does not exist it is made, and keeps messages for
	// as long as SQS can: longer than the queue, because the age of a message goes on counting when it is moved.
	Dead     string
	Receives int
	// Attributes are those of CreateQueue.
	Attributes map[string]string
}

// defaultReceives is what semel queue create sets, too: the defaults of semel work need 172.
const defaultReceives = 200

// attributes are the short names of --create, all of them in seconds.
var attributes = map[string]string{
	"visibility": "VisibilityTimeout", "delay": "DelaySeconds", "retention": "MessageRetentionPeriod",
	"wait": "ReceiveMessageWaitTimeSeconds",
}

// ParseQueue reads NAME[,fifo][,dlq=NAME:RECEIVES][,visibility=5s][,delay=…][,retention=…][,wait=…]. A FIFO queue's name gets its
// suffix, and its dead-letter queue's too.
func ParseQueue(text string) (q NewQueue, err error) {
	parts := strings.Split(text, ",")
	q = NewQueue{Name: parts[0], Attributes: map[string]string{}}
	fifo := strings.HasSuffix(q.Name, ".fifo")
	for _, part := range parts[1:] {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case part == "fifo":
			fifo = true
		case name == "dlq":
			err = q.dead(value)
		case attributes[name] != "":
			q.Attributes[attributes[name]], err = seconds(value)
		default:
			err = fmt.Errorf("%q is unknown", part)
		}
		if err != nil {
			return q, output.Usage("--create %q: %w", text, err).
				WithHint("--create NAME[,fifo][,dlq=NAME:200][,visibility=5s][,delay=1s][,retention=1d][,wait=20s]")
		}
	}
	if fifo {
		q.Name = suffixed(q.Name)
		if q.Attributes["ContentBasedDeduplication"] = "true"; q.Dead != "" {
			q.Dead = suffixed(q.Dead)
		}
	}
	return q, nil
}

func suffixed(name string) string { return strings.TrimSuffix(name, ".fifo") + ".fifo" }

func (q *NewQueue) dead(value string) (err error) {
	name, n, counted := strings.Cut(value, ":")
	if q.Dead, q.Receives = name, defaultReceives; counted {
		q.Receives, err = strconv.Atoi(n)
	}
	if err == nil && (name == "" || q.Receives < 1 || q.Receives > 1000) {
		err = fmt.Errorf("dlq=%s is no queue and a number from 1 to 1000", value)
	}
	return err
}

func seconds(value string) (string, error) {
	d, err := config.ParseDuration(value)
	if err == nil && d%time.Second != 0 {
		err = fmt.Errorf("%s is no whole number of seconds", value)
	}
	return strconv.Itoa(int(d / time.Second)), err
}

// Text is a fault as ParseFault reads it.
func Text(name string, f Fault) string {
	text := name
	if len(f.Operations) > 0 {
		text += "@" + strings.Join(f.Operations, "+")
	}
	switch {
	case f.Next > 0:
		text += fmt.Sprintf("=next:%d", f.Next)
	case f.Rate > 0:
		text += "=" + strconv.FormatFloat(f.Rate, 'g', -1, 64)
	default:
		return text + "=off"
	}
	if f.By != 0 {
		text += ",by=" + f.By.String()
	}
	return text
}
