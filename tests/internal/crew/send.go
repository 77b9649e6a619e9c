package crew

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Messages makes n messages from number first on, a share of them duplicates: the key of an earlier message under a
// message id of its own, as a producer that retries makes them. Half of the duplicates follow closely, the others come
// any time later. The same seed makes the same messages.
type Messages struct {
	rng        *rand.Rand
	duplicates float64
	sent       int
	// Keys is the number of keys so far: 1 to Keys.
	Keys int
}

// NewMessages seeds the messages. Duplicates is a share below 1.
func NewMessages(seed uint64, duplicates float64) *Messages {
	return &Messages{rng: rand.New(rand.NewPCG(seed, 0x6d657373)), duplicates: duplicates}
}

// Next makes the next n messages.
func (m *Messages) Next(n int) []driver.Message {
	out := make([]driver.Message, n)
	for i := range out {
		m.sent++
		key := m.Keys + 1
		if m.Keys > 0 && m.rng.Float64() < m.duplicates {
			back := m.Keys
			if m.rng.IntN(2) == 0 {
				back = min(back, 100)
			}
			key = m.Keys - m.rng.IntN(back)
		} else {
			m.Keys++
		}
		out[i] = driver.Message{ID: "m" + strconv.Itoa(m.sent), Body: []byte(strconv.Itoa(key))}
	}
	return out
}

// Send sends messages, again and again until the queue accepts them: after an error any of them may be there already, so
// a repetition makes further duplicates. It returns how many sends failed.
func Send(ctx context.Context, q driver.Sender, ms []driver.Message) (failed int, err error) {
	for {
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := q.Send(one, ms...)
		cancel()
		if err == nil {
			return failed, nil
		}
		failed++
		if ctx.Err() != nil {
			return failed, err
		}
		Sleep(ctx, 50*time.Millisecond)
	}
}
