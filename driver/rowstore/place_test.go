package rowstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

func TestPlacesKeepTheOrderOfKeys(t *testing.T) {
	var last rowstore.Place
	for n := range 2000 {
		p := rowstore.PlaceOf(&driver.Key{Consumer: "orders", Tenant: "acme", Raw: fmt.Sprintf("order-%06d", n)})
		if p <= last {
			t.Fatalf("the place of order %d is not behind that of the one before", n)
		}
		last = p
	}
}

// TestPlacesAreDistinct has keys whose parts could be mistaken for each other, at each length around the longest place.
func TestPlacesAreDistinct(t *testing.T) {
	long := strings.Repeat("x", 600)
	keys := []driver.Key{
		{Consumer: "a", Tenant: "b", Raw: "c"}, {Consumer: "a", Tenant: "", Raw: "bc"}, {Consumer: "a", Tenant: "bc"}, {Consumer: "a", Raw: "\x01bc"},
		{Consumer: "a", Tenant: long, Raw: "k"}, {Consumer: "a", Tenant: long + "k"}, {Consumer: "a", Raw: long + "1"}, {Consumer: "a", Raw: long + "2"},
	}
	for n := 230; n < 260; n++ {
		keys = append(keys, driver.Key{Consumer: "a", Raw: long[:n]}, driver.Key{Consumer: "b", Raw: long[:n]}, driver.Key{Consumer: "a", Tenant: "t", Raw: long[:n]})
	}
	// The place of a long key, as the key of another.
	imitated := rowstore.PlaceOf(&keys[6])
	keys = append(keys, driver.Key{Consumer: "a", Raw: string(imitated[7:])})
	seen := map[rowstore.Place]driver.Key{}
	for _, k := range keys {
		p := rowstore.PlaceOf(&k)
		if other, found := seen[p]; found {
			t.Errorf("%+v and %+v have one place", k, other)
		}
		seen[p] = k
		if len(p) > 255 {
			t.Errorf("the place of a key of %d bytes has %d bytes", len(k.Raw), len(p))
		}
		back, err := p.Key(k.Consumer, p.Rest(&k))
		if err != nil || back != k {
			t.Errorf("%+v was read as %+v, %v", k, back, err)
		}
	}
}

func FuzzPlace(f *testing.F) {
	f.Add("orders", "acme", "order-7", "orders", "acme", "order-8")
	f.Add("o", strings.Repeat("t", 300), "k", "o", "", strings.Repeat("k", 300))
	f.Fuzz(func(t *testing.T, c1, t1, k1, c2, t2, k2 string) {
		a, b := driver.Key{Consumer: c1, Tenant: t1, Raw: k1}, driver.Key{Consumer: c2, Tenant: t2, Raw: k2}
		p, q := rowstore.PlaceOf(&a), rowstore.PlaceOf(&b)
		if (p == q) != (a == b) {
			t.Fatalf("%+v and %+v: one place: %t", a, b, p == q)
		}
		if back, err := p.Key(c1, p.Rest(&a)); err != nil || back != a {
			t.Fatalf("%+v was read as %+v, %v", a, back, err)
		}
	})
}

// TestPlaceOfAnotherKey reads places that were damaged: they are refused, never taken for another key's.
func TestPlaceOfAnotherKey(t *testing.T) {
	k := driver.Key{Consumer: "orders", Tenant: "acme", Raw: strings.Repeat("order", 60)}
	p := rowstore.PlaceOf(&k)
	rest := p.Rest(&k)
	for n := range rest {
		damaged := slices.Clone(rest)
		damaged[n] ^= 1
		if got, err := p.Key(k.Consumer, damaged); !errors.Is(err, driver.ErrUnreadable) {
			t.Fatalf("byte %d changed: %+v, %v", n, got, err)
		}
	}
	short := rowstore.PlaceOf(&driver.Key{Consumer: "orders", Raw: "k"})
	for n := range short {
		if got, err := rowstore.Place(bytes.Clone([]byte(short[:n]))).Key("orders", nil); n != len(short)-1 && err == nil {
			t.Fatalf("%d bytes: %+v", n, got)
		}
	}
}
