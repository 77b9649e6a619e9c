package dynamodb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

var _ driver.LetterBox = (*LetterBox)(nil)

func newLetters(t *testing.T, client LetterClient, table, queue string) *LetterBox {
	t.Helper()
	b, err := Letters(client, table, queue, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fullLetter is a letter whose every field is set, to bytes that are no UTF-8 where these may come.
func fullLetter(id string, body []byte) driver.Letter {
	at := time.Date(2026, 5, 6, 7, 8, 9, 123456000, time.UTC)
	return driver.Letter{
		ID: id, Kind: driver.LetterUncertain, Reason: "why\x00\xff", Key: driver.Key{Consumer: "c\xff", Tenant: "t", Raw: "k|\\\xfe"},
		Generation: 3, Token: 1 << 60, Version: "v\x00\xff", Attempts: 5, FirstReceived: at,
		Message: driver.Message{
			ID: "m-" + id, Queue: "orders", Group: "g\xff", Body: body, SentAt: at.Add(time.Second),
			Headers: map[string]string{"Content-Type": "text/plain", "x-empty": "", "h\xff": "v\xfe"},
		},
	}
}

func putLetter(t *testing.T, b *LetterBox, l driver.Letter) {
	t.Helper()
	if err := b.PutLetter(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}

func letterIDs(t *testing.T, b *LetterBox, limit int) (ids []string) {
	t.Helper()
	ls, err := b.Letters(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range ls {
		ids = append(ids, l.ID)
	}
	return ids
}

// testLetters is what every letter box has to do (as the queues' suite wants it of theirs).
func testLetters(t *testing.T, client interface {
	AdminClient
	LetterClient
}, atomic bool) {
	if err := Create(t.Context(), client, "letters", CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Run("one letter for an id, oldest first", func(t *testing.T) {
		b := newLetters(t, client, "letters", "a queue: \xff")
		for _, id := range []string{"b", "a", "b", "c", "weird id/\xff"} {
			putLetter(t, b, fullLetter(id, []byte(id)))
			time.Sleep(time.Millisecond) // the order is that of the clock
		}
		want := []string{"b", "a", "c", "weird id/\xff"}
		if got := letterIDs(t, b, 0); !slices.Equal(got, want) {
			t.Errorf("letters %q, wanted %q", got, want)
		}
		if got := letterIDs(t, b, 2); !slices.Equal(got, want[:2]) {
			t.Errorf("two letters: %q, wanted %q", got, want[:2])
		}
		if l, ok, err := b.Letter(t.Context(), "a"); err != nil || !ok || string(l.Message.Body) != "a" {
			t.Errorf("letter a: found %v, %v, body %q", ok, err, l.Message.Body)
		}
		if _, ok, err := b.Letter(t.Context(), "nobody"); ok || err != nil {
			t.Errorf("a letter that is not there: found %v, %v", ok, err)
		}
		for range 2 {
			for _, id := range []string{"a", "weird id/\xff"} {
				if err := b.DeleteLetter(t.Context(), id); err != nil {
					t.Errorf("delete letter %q: %v", id, err)
				}
			}
		}
		if got := letterIDs(t, b, 0); !slices.Equal(got, []string{"b", "c"}) {
			t.Errorf("letters after deleting: %q", got)
		}
		other := newLetters(t, client, "letters", "another queue")
		if got := letterIDs(t, other, 0); len(got) != 0 {
			t.Errorf("another queue has letters %q", got)
		}
		putLetter(t, b, fullLetter("a", []byte("again")))
		if got := letterIDs(t, b, 0); !slices.Equal(got, []string{"b", "c", "a"}) {
			t.Errorf("letters after one came again: %q", got)
		}
	})
	t.Run("bodies come back byte for byte", func(t *testing.T) {
		b := newLetters(t, client, "letters", "bodies")
		for i, n := range []int{0, 1, partSize - 700, partSize, 400 << 10, 1 << 20, 3 << 20} {
			body := make([]byte, n)
			for j := range body {
				body[j] = byte(j*7 + i)
			}
			want := fullLetter(fmt.Sprint("l-", n), body)
			putLetter(t, b, want)
			got, ok, err := b.Letter(t.Context(), want.ID)
			if err != nil || !ok {
				t.Fatalf("letter of %d bytes: found %v, %v", n, ok, err)
			}
			if got.DeadAt.IsZero() || !bytes.Equal(got.Message.Body, body) {
				t.Errorf("the body of %d bytes came back with %d, or changed; dead at %v", n, len(got.Message.Body), got.DeadAt)
			}
			got.DeadAt, got.Message.Body, want.Message.Body = time.Time{}, nil, nil
			if !reflect.DeepEqual(got, want) {
				t.Errorf("the letter came back as\n%+v, wanted\n%+v", got, want)
			}
			if err := b.DeleteLetter(t.Context(), want.ID); err != nil {
				t.Error(err)
			}
		}
		if err := b.PutLetter(t.Context(), fullLetter("too large", make([]byte, maxLetter))); err == nil {
			t.Error("a letter that no transaction takes was taken")
		}
		if got := letterIDs(t, b, 0); len(got) != 0 {
			t.Errorf("letters %q are left", got)
		}
	})
	t.Run("many at once", func(t *testing.T) {
		if !atomic {
			t.Skip("transactions of moto_server at the same time mix")
		}
		b := newLetters(t, client, "letters", "many")
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				for _, id := range []string{fmt.Sprint(i), "same"} {
					if err := b.PutLetter(context.WithoutCancel(t.Context()), fullLetter(id, make([]byte, 100<<10))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if got := letterIDs(t, b, 0); len(got) != 41 {
			t.Errorf("%d letters, wanted 41", len(got))
		}
		for i := range 40 {
			wg.Go(func() {
				if err := errors.Join(b.DeleteLetter(t.Context(), fmt.Sprint(i)), b.DeleteLetter(t.Context(), "same")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := letterIDs(t, b, 0); len(got) != 0 {
			t.Errorf("%q are left", got)
		}
	})
}

func TestLettersMoto(t *testing.T) { testLetters(t, moto(t), false) }

// TestLetterWithoutParts: what a broken hand left is said, and not handed out as a letter.
func TestLetterWithoutParts(t *testing.T) {
	for _, data := range [][]byte{nil, {0xff}, {200, 1, '{'}, append([]byte{2}, "{]"...)} {
		if l, err := decodeLetter(data); err == nil {
			t.Errorf("%q became %+v", data, l)
		}
	}
	if _, err := Letters(nil, "t", "q", Options{Layout: Layout{PartitionKey: "file_key"}}); err == nil {
		t.Error("letters in a table without a sort key were taken")
	}
}
