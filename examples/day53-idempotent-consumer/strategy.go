package day53

import (
	"errors"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// Strategy says what must take effect once: the key, and what else decides about a duplicate.
type Strategy func(msg *Message) (key string, opts []semel.DoOption, err error)

var content = key.FingerprintBody()

// payload guards against one key with two payloads: the second is an error (semel.ErrMismatch), and never gets the result
// of the first.
func payload(msg *Message) (semel.DoOption, error) {
	fp, err := content(&semel.Message{Body: []byte(key.Tuple(msg.Type, msg.Data))})
	return semel.WithFingerprint(fp), err
}

// ByID lets each id take effect once.
func ByID(msg *Message) (string, []semel.DoOption, error) {
	if msg.ID == "" {
		return "", nil, errors.New("the message has no id")
	}
	fp, err := payload(msg)
	return key.Tuple(msg.ID), []semel.DoOption{fp}, err
}

// ByVersion takes the id for an entity whose messages replace each other: an older version than the one that was
// applied is skipped.
func ByVersion(msg *Message) (string, []semel.DoOption, error) {
	return versioned(msg, driver.IntVersion(int64(msg.Version)))
}

// ByTimestamp does so by the sender's time. The same time with the same payload is a duplicate, with another payload an
// error: it is unknown which is the newer one.
func ByTimestamp(msg *Message) (string, []semel.DoOption, error) {
	if msg.Timestamp.IsZero() {
		return "", nil, errors.New("the message has no timestamp")
	}
	return versioned(msg, driver.TimeVersion(msg.Timestamp))
}

func versioned(msg *Message, v semel.Version) (string, []semel.DoOption, error) {
	key, opts, err := ByID(msg)
	return key, append(opts, semel.WithVersion(v)), err
}

var hash = key.FromBody()

// ByHash lets each content take effect once, whatever its id: for senders that give a repetition a new id. Two messages
// that say the same and mean two things are one: use it only where that cannot be.
func ByHash(msg *Message) (string, []semel.DoOption, error) {
	sum, err := hash(&semel.Message{Body: []byte(msg.Data)})
	return key.Tuple(msg.Type, sum), nil, err
}
