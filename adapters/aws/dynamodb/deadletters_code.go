package dynamodb

import (
	enc "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// deadLetterForm is a dead letter without its body, as JSON. Texts that need not be UTF-8 are byte slices (base64).
type deadLetterForm struct {
	ID         []byte      `json:"id"`
	Kind       string      `json:"kind"`
	Reason     []byte      `json:"reason,omitempty"`
	Consumer   []byte      `json:"consumer,omitempty"`
	Tenant     []byte      `json:"tenant,omitempty"`
	Key        []byte      `json:"key,omitempty"`
	Generation uint32      `json:"generation,omitempty"`
	Token      uint64      `json:"token,omitempty"`
	Version    []byte      `json:"version,omitempty"`
	Attempts   int         `json:"attempts,omitempty"`
	Received   int64       `json:"first_received,omitempty"` // microseconds, as are the others
	Dead       int64       `json:"dead_at"`
	MessageID  []byte      `json:"message,omitempty"`
	Queue      []byte      `json:"queue,omitempty"`
	Group      []byte      `json:"group,omitempty"`
	Sent       int64       `json:"sent,omitempty"`
	Headers    [][2][]byte `json:"headers,omitempty"`
}

// encodeDeadLetter writes a dead letter as one blob: the length of the form, the form, the body.
func encodeDeadLetter(l *driver.DeadLetter) ([]byte, error) {
	m := &l.Message
	f := deadLetterForm{
		ID: []byte(l.ID), Kind: string(l.Kind), Reason: []byte(l.Reason), Consumer: []byte(l.Key.Consumer),
		Tenant: []byte(l.Key.Tenant), Key: []byte(l.Key.Raw), Generation: l.Generation, Token: l.Token,
		Version: []byte(l.Version), Attempts: l.Attempts, Received: microsOf(l.FirstReceived), Dead: microsOf(l.DeadAt),
		MessageID: []byte(m.ID), Queue: []byte(m.Queue), Group: []byte(m.Group), Sent: microsOf(m.SentAt),
	}
	for k, v := range m.Headers {
		f.Headers = append(f.Headers, [2][]byte{[]byte(k), []byte(v)})
	}
	form, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode it: %w", err)
	}
	out := enc.AppendUvarint(make([]byte, 0, len(form)+len(m.Body)+4), uint64(len(form)))
	return append(append(out, form...), m.Body...), nil
}

func decodeDeadLetter(data []byte) (l driver.DeadLetter, err error) {
	size, n := enc.Uvarint(data)
	if n <= 0 || size > uint64(len(data)-n) {
		return l, errors.New("its item was not written by this program, or only in part")
	}
	form, body := data[n:n+int(size)], data[n+int(size):] //nolint:gosec // size is at most len(data)
	var f deadLetterForm
	if err := json.Unmarshal(form, &f); err != nil {
		return l, fmt.Errorf("decode it: %w", err)
	}
	l = driver.DeadLetter{
		ID: string(f.ID), Kind: driver.DeadLetterKind(f.Kind), Reason: string(f.Reason),
		Key:        driver.Key{Consumer: string(f.Consumer), Tenant: string(f.Tenant), Raw: string(f.Key)},
		Generation: f.Generation, Token: f.Token, Version: driver.Version(f.Version), Attempts: f.Attempts,
		FirstReceived: timeOf(f.Received), DeadAt: timeOf(f.Dead),
		Message: driver.Message{
			ID: string(f.MessageID), Queue: string(f.Queue), Group: string(f.Group), SentAt: timeOf(f.Sent), Body: body,
		},
	}
	if len(f.Headers) > 0 {
		l.Message.Headers = make(map[string]string, len(f.Headers))
		for _, h := range f.Headers {
			l.Message.Headers[string(h[0])] = string(h[1])
		}
	}
	return l, nil
}

// microsOf returns a time in microseconds; 0 for the zero time.
func microsOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func timeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}
