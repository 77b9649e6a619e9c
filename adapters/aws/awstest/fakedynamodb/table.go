package fakedynamodb

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

// Limits of keys and items.
//
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
const (
	maxPartitionKey = 2048
	maxSortKey      = 1024
	maxItem         = 400 * 1024
)

// attribute is a key attribute: its name and type.
type attribute struct{ name, kind string }

// place is the position of an item: partitions are in the order of a hash, on which clients cannot rely, items in a
// partition in the order of the sort key.
type place struct {
	hash      uint64
	partition string
	sort      value // kind "" when the table has no sort key
}

func (p place) cmp(q place) int {
	switch {
	case p.hash != q.hash && p.hash < q.hash:
		return -1
	case p.hash != q.hash:
		return 1
	case p.partition != q.partition:
		return strings.Compare(p.partition, q.partition)
	case p.sort.kind == "":
		return 0
	}
	return p.sort.cmp(q.sort)
}

// row is an item with the version before, for reads that lag. A row whose item is nil was deleted.
type row struct {
	at      place
	now     item
	before  item
	written time.Time
}

// table is a table with its items, in the order of places.
type table struct {
	name      string
	id        string
	keys      []attribute // partition key, sort key
	created   time.Time
	active    time.Time
	billing   string
	read      int64 // provisioned units
	write     int64
	protected bool
	class     string
	rows      []*row
	ttl       string // attribute, "" = off
	ttlDue    int64  // no item expires before this second

	ttlChanged time.Time
}

func (t *table) keyNames() []string {
	out := make([]string, len(t.keys))
	for i, k := range t.keys {
		out[i] = k.name
	}
	return out
}

// find is the index of the first row not before a place, and whether it is that row.
func (t *table) find(p place) (int, bool) {
	return slices.BinarySearchFunc(t.rows, p, func(r *row, p place) int { return r.at.cmp(p) })
}

func (t *table) get(p place) item {
	if i, ok := t.find(p); ok {
		return t.rows[i].now
	}
	return nil
}

// put makes it the item at a place, nil for none.
func (t *table) put(p place, it item, now time.Time) {
	i, ok := t.find(p)
	if !ok && it == nil {
		return
	}
	if !ok {
		t.rows = slices.Insert(t.rows, i, &row{at: p})
	}
	r := t.rows[i]
	r.before, r.now, r.written = r.now, it, now
	if due, ok := t.expiry(it); ok {
		t.ttlDue = min(t.ttlDue, due)
	}
}

// place finds where an item with these attributes stands. The key attributes have to be there, of the right type and size.
func (t *table) place(it item) (place, error) {
	p := place{}
	for i, k := range t.keys {
		v, ok := it[k.name]
		if !ok {
			return p, invalid("One or more parameter values were invalid: Missing the key %s in the item", k.name)
		}
		if v.kind != k.kind {
			return p, invalid("One or more parameter values were invalid: Type mismatch for key %s expected: %s actual: %s",
				k.name, k.kind, v.kind)
		}
		if v.text == "" {
			word := "string"
			if v.kind == "B" {
				word = "binary"
			}
			return p, invalid(
				"One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty %s value. Key: %s", word, k.name)
		}
		if i == 1 {
			p.sort = v
			continue
		}
		h := sha256.Sum256([]byte(v.text))
		p.partition, p.hash = v.text, binary.BigEndian.Uint64(h[:])
	}
	switch {
	case len(p.partition) > maxPartitionKey:
		return p, invalid(
			"One or more parameter values were invalid: Size of hashkey has exceeded the maximum size limit of%d bytes", maxPartitionKey)
	case len(p.sort.text) > maxSortKey:
		return p, invalid(
			"One or more parameter values were invalid: Aggregated size of all range keys has exceeded the size limit of %d bytes", maxSortKey)
	}
	return p, nil
}

// key finds the place of a key, which has the key attributes and no others.
func (t *table) key(key item) (place, error) {
	wrong := len(key) != len(t.keys)
	for _, k := range t.keys {
		if v, ok := key[k.name]; !ok || v.kind != k.kind {
			wrong = true
		}
	}
	if wrong {
		return place{}, invalid("The provided key element does not match the schema")
	}
	return t.place(key)
}

// keyOf is the key of an item.
func (t *table) keyOf(it item) item {
	out := item{}
	for _, k := range t.keys {
		out[k.name] = it[k.name]
	}
	return out
}

// live counts items and their bytes.
func (t *table) live() (n, bytes int64) {
	for _, r := range t.rows {
		if r.now != nil {
			n++
			bytes += int64(r.now.size())
		}
	}
	return n, bytes
}
