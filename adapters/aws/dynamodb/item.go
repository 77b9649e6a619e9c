package dynamodb

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/driver"
)

// attrs are the attributes of an item. The maps and values of a row are shared and never modified.
type attrs = map[string]types.AttributeValue

// row is a record with the other attributes of its item. The zero row is that of a key without an item.
type row struct {
	driver.Record
	// rev is raised by every write; 0 = there is no item, or an older program wrote it.
	rev uint64
	// extra are the attributes of journal and audit log, by their names without prefix: all that begin with extraMark. To
	// change them, put a changed copy here: only differences are written.
	extra attrs
	// foreign means that an older program wrote the item; adopted is its status, nil = it has none.
	adopted types.AttributeValue
	foreign bool
}

// extraMark begins the names of the attributes in row.extra.
const extraMark = "x_"

// withExtra returns the row with attributes put or, where nil, removed.
func (r row) withExtra(change attrs) row {
	all := maps.Clone(r.extra)
	if all == nil {
		all = attrs{}
	}
	for name, v := range change {
		if v == nil {
			delete(all, name)
		} else {
			all[name] = v
		}
	}
	r.extra = all
	return r
}

// field is one attribute of a record. get returns nil for the zero value, which has no attribute.
type field struct {
	name string
	get  func(r *row) types.AttributeValue
	set  func(r *row, v types.AttributeValue) error
}

// fields are the attributes of a record except state, rev and time to live.
var fields = []field{
	textField("key", func(r *row) *string { return &r.Key.Raw }),
	textField("consumer", func(r *row) *string { return &r.Key.Consumer }),
	textField("tenant", func(r *row) *string { return &r.Key.Tenant }),
	numberField("generation", func(r *row) *uint32 { return &r.Generation }),
	numberField("epoch", func(r *row) *uint32 { return &r.Epoch }),
	numberField("token", func(r *row) *uint64 { return &r.Token }),
	{"nonce", func(r *row) types.AttributeValue {
		if r.Nonce == (driver.Nonce{}) {
			return nil
		}
		return binary(r.Nonce[:])
	}, func(r *row, v types.AttributeValue) error {
		b, err := asBytes(v)
		if err == nil && len(b) != len(r.Nonce) {
			err = fmt.Errorf("has %d bytes", len(b))
		}
		copy(r.Nonce[:], b)
		return err
	}},
	boolField("spent", func(r *row) *bool { return &r.Spent }),
	numberField("takeover", func(r *row) *driver.Takeover { return &r.Takeover }),
	numberField("lease", func(r *row) *time.Duration { return &r.Lease }),
	timeField("lease_until", func(r *row) *time.Time { return &r.LeaseUntil }),
	numberField("beat", func(r *row) *uint32 { return &r.Beat }),
	numberField("attempt", func(r *row) *int { return &r.Attempt }),
	numberField("failures", func(r *row) *int { return &r.Failures }),
	numberField("takeovers", func(r *row) *int { return &r.Takeovers }),
	boolField("unknown", func(r *row) *bool { return &r.Unknown }),
	numberField("uncertainty", func(r *row) *int { return &r.Uncertainty }),
	numberField("body_digest", func(r *row) *driver.BodyDigest { return &r.BodyDigest }),
	textField("fingerprint", func(r *row) *driver.Fingerprint { return &r.Fingerprint }),
	{"result", func(r *row) types.AttributeValue {
		if len(r.Result) == 0 {
			return nil
		}
		return binary(r.Result)
	}, func(r *row, v types.AttributeValue) (err error) {
		r.Result, err = asBytes(v)
		return err
	}},
	textField("reason", func(r *row) *string { return &r.Reason }),
	boolField("disposed", func(r *row) *bool { return &r.Disposed }),
	timeField("retry_at", func(r *row) *time.Time { return &r.RetryAt }),
	timeField("created_at", func(r *row) *time.Time { return &r.CreatedAt }),
	timeField("updated_at", func(r *row) *time.Time { return &r.UpdatedAt }),
	timeField("completed_at", func(r *row) *time.Time { return &r.CompletedAt }),
	timeField("retain_until", func(r *row) *time.Time { return &r.RetainUntil }),
	{"watermark", func(r *row) types.AttributeValue {
		if b := driver.AppendWatermark(nil, &r.Watermark); len(b) > 0 {
			return binary(b)
		}
		return nil
	}, func(r *row, v types.AttributeValue) error {
		b, err := asBytes(v)
		if err == nil {
			r.Watermark, err = driver.ParseWatermark(b)
		}
		return err
	}},
	{"deliveries", deliveriesValue, setDeliveries},
}

// attributeNames returns the names of all attributes without prefix, except journal and audit log.
func attributeNames() []string {
	names := []string{"rev", "state", "ttl"}
	for i := range fields {
		names = append(names, fields[i].name)
	}
	return names
}

// encode returns the item of a row, without its keys.
func (s *shape) encode(r *row, slack time.Duration) attrs {
	item := make(attrs, 24+len(r.extra))
	if r.rev == 0 {
		return item
	}
	for i := range fields {
		if v := fields[i].get(r); v != nil {
			item[s.names[fields[i].name]] = v
		}
	}
	item[s.names["rev"]] = number(r.rev)
	item[s.names["state"]] = &types.AttributeValueMemberS{Value: s.status[r.State]}
	if !r.RetainUntil.IsZero() {
		item[s.ttl] = number(r.RetainUntil.Add(slack + time.Second - 1).Unix())
	}
	for name, v := range r.extra {
		item[s.prefix+name] = v
	}
	return item
}

// decode reads the item of a key, which may be nil. It is an error if the item belongs to another key, or is not semel's and
// the layout does not define its meaning.
func (s *shape) decode(k driver.Key, item attrs) (row, error) {
	if len(item) == 0 {
		return row{}, nil
	}
	if _, ok := item[s.names["rev"]]; !ok {
		r, err := s.adoptItem(k, item)
		return r, ofItem(err)
	}
	r, err := s.parse(item)
	if err == nil && r.Key != k {
		err = fmt.Errorf("its item in the table is that of another key (%q of consumer %q, tenant %q): Layout.Text must "+
			"return different texts for them", r.Key.Raw, r.Key.Consumer, r.Key.Tenant)
	}
	return r, ofItem(err)
}

// errItem is wrapped by errors about a single item: the store itself works.
var errItem = fmt.Errorf("%w: nothing is run", driver.ErrUnreadable)

func ofItem(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errItem, err)
}

// errForeign reports an item without semel's attributes.
var errForeign = errors.New("not written by semel")

// parse reads an item that semel wrote; errForeign = semel did not write it.
func (s *shape) parse(item attrs) (r row, err error) {
	rev, ok := item[s.names["rev"]]
	if !ok {
		return r, errForeign
	}
	if r.rev, err = asUint(rev); err != nil || r.rev == 0 {
		return r, fmt.Errorf("read attribute %s of item %s: is no revision (%w)", s.names["rev"], s.itemName(item), err)
	}
	status, err := asText(item[s.names["state"]])
	if r.State, ok = s.states[status]; err != nil || !ok {
		return r, fmt.Errorf("read attribute %s of item %s: %q is no state: list it in Layout.Statuses",
			s.names["state"], s.itemName(item), status)
	}
	for i := range fields {
		if v, ok := item[s.names[fields[i].name]]; ok {
			if err := fields[i].set(&r, v); err != nil {
				return r, fmt.Errorf("read attribute %s of item %s: %w", s.names[fields[i].name], s.itemName(item), err)
			}
		}
	}
	for name, v := range item {
		if rest, ok := strings.CutPrefix(name, s.prefix); ok && strings.HasPrefix(rest, extraMark) {
			if r.extra == nil {
				r.extra = attrs{}
			}
			r.extra[rest] = v
		}
	}
	return r, nil
}

// adoptItem returns the record for an item of an older program.
func (s *shape) adoptItem(k driver.Key, item attrs) (row, error) {
	found := item[s.names["state"]]
	status, _ := asText(found)
	if n, ok := found.(*types.AttributeValueMemberN); ok {
		status = n.Value
	}
	state, ok := s.adopt[status]
	if !ok {
		return row{}, fmt.Errorf("its item in the table is %w, and its %s %q is not listed in Layout.Adopt: "+
			"list what that status means, or delete the item", errForeign, s.names["state"], status)
	}
	r := row{adopted: found, foreign: true}
	if state == driver.Absent {
		return r, nil
	}
	r.Record = driver.Record{
		Key: k, State: state, Generation: 1, Attempt: 1,
		Reason: fmt.Sprintf("adopted: a program before semel left %s %q", s.names["state"], status),
	}
	r.Unknown = state == driver.Released || state == driver.Uncertain
	if r.Unknown {
		r.Uncertainty = 1
	}
	return r, nil
}

func (s *shape) itemName(item attrs) string {
	name, _ := asText(item[s.pk])
	return strconv.Quote(name)
}

// hashMark begins partition keys that are hashes, ownMark those of items that are not records.
const (
	hashMark = "rec#"
	ownMark  = "semel#"
)

// keyOf is the primary key of a key's item.
func (s *shape) keyOf(k driver.Key) attrs {
	return s.keyAt(s.partition(k))
}

func (s *shape) keyAt(partition string) attrs {
	key := attrs{s.pk: &types.AttributeValueMemberS{Value: partition}}
	if s.sk != "" {
		key[s.sk] = &types.AttributeValueMemberS{Value: s.sortValue}
	}
	return key
}

// partition is the value of the partition key.
func (s *shape) partition(k driver.Key) string {
	if s.text != nil {
		if text := s.text(k); text != "" && len(text) <= 1024 && utf8.ValidString(text) &&
			!strings.HasPrefix(text, hashMark) && !strings.HasPrefix(text, ownMark) {
			return text
		}
	}
	h := k.Hash()
	return hashMark + base64.RawURLEncoding.EncodeToString(h[:])
}
