package rowstore_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/semel-dev/semel/driver/rowstore"
)

func TestDeliveriesAreReadAsPacked(t *testing.T) {
	for _, c := range []struct{ ids, want []string }{
		{nil, nil}, {[]string{""}, nil}, {[]string{"k"}, []string{"k"}}, {[]string{"a", "k", "b"}, []string{"a", "k", "b"}},
	} {
		b := rowstore.PackDeliveries("k", c.ids...)
		got, err := rowstore.ReadDeliveries("k", b)
		if err != nil || !slices.Equal(got, c.want) || (b == nil) != (c.want == nil) {
			t.Errorf("%q was read as %q, %v", c.ids, got, err)
		}
	}
	if b := rowstore.PackDeliveries("a long key", "a long key"); !bytes.Equal(b, []byte{0}) {
		t.Errorf("an id that is the key takes %d bytes", len(b))
	}
	if ids, err := rowstore.ReadDeliveries("k", []byte{5, 'a'}); err == nil {
		t.Errorf("damaged lengths were read as %q", ids)
	}
}
