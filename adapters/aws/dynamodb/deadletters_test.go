package dynamodb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/deadletter"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

var (
	_ driver.DeadLetterQueue = (*DeadLetterQueue)(nil)
	_ driver.DeadLetterPager = (*DeadLetterQueue)(nil)
)

func newDeadLetters(t *testing.T, client DeadLetterClient, table, queue string) *DeadLetterQueue {
	t.Helper()
	b, err := DeadLetters(client, table, queue, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fullDeadLetter is a dead letter with every field set, to invalid UTF-8 where that may occur.
func fullDeadLetter(id string, body []byte) driver.DeadLetter {
	at := time.Date(2026, 5, 6, 7, 8, 9, 123456000, time.UTC)
	return driver.DeadLetter{
		ID: id, Kind: driver.DeadLetterUncertain, Reason: "why\x00\xff", Key: driver.Key{Consumer: "c\xff", Tenant: "t", Raw: "k|\\\xfe"},
		Generation: 3, Token: 1 << 60, Version: "v\x00\xff", Attempts: 5, FirstReceived: at,
		Message: driver.Message{
			ID: "m-" + id, Queue: "orders", Group: "g\xff", Body: body, SentAt: at.Add(time.Second),
			Headers: map[string]string{"Content-Type": "text/plain", "x-empty": "", "h\xff": "v\xfe"},
		},
	}
}

func putDeadLetter(t *testing.T, b *DeadLetterQueue, l driver.DeadLetter) {
	t.Helper()
	if err := b.PutDeadLetter(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}

func deadLetterIDs(t *testing.T, b *DeadLetterQueue, limit int) (ids []string) {
	t.Helper()
	ls, err := b.DeadLetters(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range ls {
		ids = append(ids, l.ID)
	}
	return ids
}

// testDeadLetters checks what every dead-letter queue must do, as the suite for queues does.
func testDeadLetters(t *testing.T, client interface {
	AdminClient
	DeadLetterClient
}, atomic bool) {
	if err := Create(t.Context(), client, "dead-letters", CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Run("one dead letter for an id, oldest first", func(t *testing.T) {
		b := newDeadLetters(t, client, "dead-letters", "a queue: \xff")
		for _, id := range []string{"b", "a", "b", "c", "weird id/\xff"} {
			putDeadLetter(t, b, fullDeadLetter(id, []byte(id)))
			time.Sleep(time.Millisecond) // the order is that of the clock
		}
		want := []string{"b", "a", "c", "weird id/\xff"}
		if got := deadLetterIDs(t, b, 0); !slices.Equal(got, want) {
			t.Errorf("dead letters %q, wanted %q", got, want)
		}
		if got := deadLetterIDs(t, b, 2); !slices.Equal(got, want[:2]) {
			t.Errorf("two dead letters: %q, wanted %q", got, want[:2])
		}
		if l, ok, err := b.DeadLetter(t.Context(), "a"); err != nil || !ok || string(l.Message.Body) != "a" {
			t.Errorf("dead letter a: found %v, %v, body %q", ok, err, l.Message.Body)
		}
		if _, ok, err := b.DeadLetter(t.Context(), "nobody"); ok || err != nil {
			t.Errorf("a dead letter that is not there: found %v, %v", ok, err)
		}
		for range 2 {
			for _, id := range []string{"a", "weird id/\xff"} {
				if err := b.DeleteDeadLetter(t.Context(), id); err != nil {
					t.Errorf("delete dead letter %q: %v", id, err)
				}
			}
		}
		if got := deadLetterIDs(t, b, 0); !slices.Equal(got, []string{"b", "c"}) {
			t.Errorf("dead letters after deleting: %q", got)
		}
		other := newDeadLetters(t, client, "dead-letters", "another queue")
		if got := deadLetterIDs(t, other, 0); len(got) != 0 {
			t.Errorf("another queue has dead letters %q", got)
		}
		putDeadLetter(t, b, fullDeadLetter("a", []byte("again")))
		if got := deadLetterIDs(t, b, 0); !slices.Equal(got, []string{"b", "c", "a"}) {
			t.Errorf("dead letters after one was put again: %q", got)
		}
	})
	t.Run("bodies are returned byte for byte", func(t *testing.T) {
		b := newDeadLetters(t, client, "dead-letters", "bodies")
		for i, n := range []int{0, 1, partSize - 700, partSize, 400 << 10, 1 << 20, 3 << 20} {
			body := make([]byte, n)
			for j := range body {
				body[j] = byte(j*7 + i)
			}
			want := fullDeadLetter(fmt.Sprint("l-", n), body)
			putDeadLetter(t, b, want)
			got, ok, err := b.DeadLetter(t.Context(), want.ID)
			if err != nil || !ok {
				t.Fatalf("dead letter of %d bytes: found %v, %v", n, ok, err)
			}
			if got.DeadAt.IsZero() || !bytes.Equal(got.Message.Body, body) {
				t.Errorf("the body of %d bytes was returned with %d, or changed; dead at %v", n, len(got.Message.Body), got.DeadAt)
			}
			got.DeadAt, got.Message.Body, want.Message.Body = time.Time{}, nil, nil
			if !reflect.DeepEqual(got, want) {
				t.Errorf("the dead letter was returned as\n%+v, wanted\n%+v", got, want)
			}
			if err := b.DeleteDeadLetter(t.Context(), want.ID); err != nil {
				t.Error(err)
			}
		}
		if err := b.PutDeadLetter(t.Context(), fullDeadLetter("too large", make([]byte, maxDeadLetter))); err == nil {
			t.Error("a dead letter that no transaction takes was accepted")
		}
		if got := deadLetterIDs(t, b, 0); len(got) != 0 {
			t.Errorf("dead letters %q are left", got)
		}
	})
	t.Run("many at once", func(t *testing.T) {
		if !atomic {
			t.Skip("transactions of moto_server at the same time mix")
		}
		b := newDeadLetters(t, client, "dead-letters", "many")
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				for _, id := range []string{fmt.Sprint(i), "same"} {
					if err := b.PutDeadLetter(context.WithoutCancel(t.Context()), fullDeadLetter(id, make([]byte, 100<<10))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if got := deadLetterIDs(t, b, 0); len(got) != 41 {
			t.Errorf("%d dead letters, wanted 41", len(got))
		}
		for i := range 40 {
			wg.Go(func() {
				if err := errors.Join(b.DeleteDeadLetter(t.Context(), fmt.Sprint(i)), b.DeleteDeadLetter(t.Context(), "same")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := deadLetterIDs(t, b, 0); len(got) != 0 {
			t.Errorf("%q are left", got)
		}
	})
}

func TestDeadLettersMoto(t *testing.T) { testDeadLetters(t, moto(t), false) }

// TestDeadLetterWithoutParts reads damaged items: that is an error, never a dead letter.
func TestDeadLetterWithoutParts(t *testing.T) {
	for _, data := range [][]byte{nil, {0xff}, {200, 1, '{'}, append([]byte{2}, "{]"...)} {
		if l, err := decodeDeadLetter(data); err == nil {
			t.Errorf("%q became %+v", data, l)
		}
	}
	if _, err := DeadLetters(nil, "t", "q", Options{Layout: Layout{PartitionKey: "file_key"}}); err == nil {
		t.Error("dead letters in a table without a sort key were accepted")
	}
}

func TestDeadLetters(t *testing.T) { testDeadLetters(t, bareFake(), true) }

// TestDeadLettersBesideOtherNames keeps dead letters in a table whose keys have the names of the dead letter's attributes.
func TestDeadLettersBesideOtherNames(t *testing.T) {
	for pk, sk := range map[string]string{"key": "at", "data": "dead_letter", "reason": "kind", "parts": "id"} {
		client := bareFake()
		o := Options{Layout: Layout{PartitionKey: pk, SortKey: sk}}
		if err := Create(t.Context(), client, "dead-letters", CreateOptions{Options: o}); err != nil {
			t.Fatal(err)
		}
		q, err := DeadLetters(client, "dead-letters", "orders", o)
		if err != nil {
			t.Fatal(err)
		}
		large := strings.Repeat("x", partSize+1)
		for _, id := range []string{"one", "two"} {
			l := fullDeadLetter(id, []byte(large))
			l.Reason = strings.Repeat("why", 2<<20)
			if err := q.PutDeadLetter(t.Context(), l); err != nil {
				t.Fatalf("keys %s and %s: %v", pk, sk, err)
			}
		}
		if err := q.DeleteDeadLetter(t.Context(), "one"); err != nil {
			t.Error(err)
		}
		all, err := q.DeadLetters(t.Context(), 0)
		if err != nil || len(all) != 1 || all[0].ID != "two" || string(all[0].Message.Body) != large {
			t.Errorf("keys %s and %s: %d dead letters listed, %v", pk, sk, len(all), err)
		}
	}
}

// TestDeadLetterPages runs the suite's case of pages on dead letters in a table.
func TestDeadLetterPages(t *testing.T) {
	client := bareFake()
	if err := Create(t.Context(), client, "dead-letters", CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, failure := range semeltest.CheckQueue(t, func(testing.TB) semeltest.QueueSetup {
		return semeltest.QueueSetup{Queue: deadletter.With(memory.NewQueue("orders"), newDeadLetters(t, client, "dead-letters", "pages"))}
	}, "dead letters by page") {
		t.Error(failure)
	}
}
