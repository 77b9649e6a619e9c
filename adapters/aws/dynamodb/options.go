package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/semel-dev/semel/driver"
)

// Client is the part of *awsdynamodb.Client that a [Store] uses.
type Client interface {
	GetItem(context.Context, *awsdynamodb.GetItemInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.GetItemOutput, error)
	UpdateItem(context.Context, *awsdynamodb.UpdateItemInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.UpdateItemOutput, error)
	DeleteItem(context.Context, *awsdynamodb.DeleteItemInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.DeleteItemOutput, error)
	Query(context.Context, *awsdynamodb.QueryInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.QueryOutput, error)
	Scan(context.Context, *awsdynamodb.ScanInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.ScanOutput, error)
	BatchGetItem(context.Context, *awsdynamodb.BatchGetItemInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.BatchGetItemOutput, error)
	TransactWriteItems(context.Context, *awsdynamodb.TransactWriteItemsInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.TransactWriteItemsOutput, error)
	DescribeTable(context.Context, *awsdynamodb.DescribeTableInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.DescribeTableOutput, error)
}

// Options of [Open]. The zero value is the documented default.
type Options struct {
	// Layout describes how records are stored in the table. The zero Layout is that of a table that semel created.
	Layout Layout
	// Gate is the name of a second table that gets one row per completed key, written in the transaction that completes
	// the record, on the condition that it does not exist yet. It costs four write units instead of one. "" = none.
	Gate string
	// GateKey is the partition key of that table; it has no sort key. Defaults to Layout.PartitionKey.
	GateKey string
	// MaxClockSkew is how far the clocks of two processes may differ. Another worker's lease is respected for this long
	// after its end.
	// Defaults to 10 s; negative = 0.
	MaxClockSkew time.Duration
	// Observe ends another worker's lease when this process has seen its record unchanged for the whole lease, by its own
	// monotonic clock: no clocks are compared. A takeover then takes at least a lease longer. Defaults to false.
	Observe bool
	// Clock returns the time. Defaults to time.Now.
	Clock func() time.Time
	// Parallel bounds the number of concurrent requests. Defaults to 32.
	Parallel int
	// CallTimeout bounds one request, so that a hanging connection is abandoned. Defaults to 3 s.
	CallTimeout time.Duration
	// RetryFor bounds for how long a write is repeated that was throttled, conflicted with a transaction or got no response,
	// within its ctx. Defaults to 15 s.
	RetryFor time.Duration
	// TTLSlack is how long after a record's retention DynamoDB may delete it (the attribute of the time to live).
	// Defaults to 1 h, and is at least twice MaxClockSkew.
	TTLSlack time.Duration
	// MaxCached bounds the records of running attempts that are kept in memory, so that changes need not read them first.
	// Defaults to 16384.
	MaxCached int
	// SweepEvery is how often one process of all reads the whole table, in parts of a few MB a minute, to park abandoned
	// claims and to purge records that the time to live has not deleted. Reads are billed, and the time to live is free.
	// Defaults to 6 h; negative = with every call of [Store.Sweep], as an operator's command does.
	SweepEvery time.Duration
}

// Layout says how records lie in a table. The zero Layout is that of a table of semel's own: partition key pk, sort key sk,
// both strings. A table that was there before is described by its keys; of its items semel touches only what it wrote.
type Layout struct {
	// PartitionKey is the name of the partition key, a string. Defaults to "pk".
	PartitionKey string
	// SortKey is the name of the sort key, a string, and SortValue what records have in it. "" = the table has none, if
	// PartitionKey is given; else "sk". SortValue defaults to "record".
	SortKey, SortValue string
	// Text makes the value of the partition key from a key, where an existing table prescribes it: see [RawKeys]. If it is
	// nil or returns "", more than 1024 bytes or invalid UTF-8, the value is "rec#" and the key's hash. Two keys with the
	// same text are an error and never share a record: the raw key is stored and compared as well.
	Text func(k driver.Key) string
	// Prefix begins the names of the attributes that semel writes. Defaults to "", and to "semel_" if PartitionKey is given.
	Prefix string
	// Names renames single attributes, by their names without prefix: {"attempt": "attempts"}.
	Names map[string]string
	// Status is the name of the attribute with the state. Defaults to the prefix and "state".
	Status string
	// Statuses are the texts of the states in it, where they are not their names ("IN_PROGRESS", "COMPLETED").
	Statuses map[driver.State]string
	// Adopt maps the statuses of items that an older program wrote, and that have no other attribute of semel's, to states.
	// InProgress gives the old writer one lease; Absent makes it a new key. An item whose status is not listed is an error,
	// and nothing is run. List a status that is a number by its digits, an item without a status by "".
	Adopt map[string]driver.State
	// TTL is the name of the attribute for DynamoDB's time to live. Defaults to the prefix and "ttl".
	TTL string
}

// RawKeys makes a [Layout.Text] that stores the keys of one consumer without a tenant as they are, for a table whose
// partition key is the message's ID. All other keys are hashed.
func RawKeys(consumer string) func(driver.Key) string {
	return func(k driver.Key) string {
		if k.Consumer != consumer || k.Tenant != "" {
			return ""
		}
		return k.Raw
	}
}

func (o Options) clock() func() time.Time {
	if o.Clock == nil {
		return time.Now
	}
	return o.Clock
}

// skew returns how far clocks may differ.
func (o Options) skew() time.Duration {
	switch {
	case o.MaxClockSkew < 0:
		return 0
	case o.MaxClockSkew == 0:
		return 10 * time.Second
	}
	return o.MaxClockSkew
}

func (o Options) withDefaults() (Options, error) {
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"CallTimeout", &o.CallTimeout, 3 * time.Second},
		{"RetryFor", &o.RetryFor, 15 * time.Second},
		{"TTLSlack", &o.TTLSlack, time.Hour},
	} {
		if *d.value < 0 {
			return o, fmt.Errorf("option %s is %v, must not be negative", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if o.Parallel < 0 || o.MaxCached < 0 {
		return o, errors.New("options Parallel and MaxCached must not be negative")
	}
	if o.Parallel == 0 {
		o.Parallel = 32
	}
	if o.MaxCached == 0 {
		o.MaxCached = 16384
	}
	if o.SweepEvery == 0 {
		o.SweepEvery = sweepEvery
	}
	o.Clock = o.clock()
	o.TTLSlack = max(o.TTLSlack, 2*o.skew())
	return o, nil
}

// shape is a layout with its defaults.
type shape struct {
	pk, sk, sortValue string
	gateKey           string
	text              func(driver.Key) string
	prefix, ttl       string
	names             map[string]string // all attributes of a record, by their names without prefix
	status            map[driver.State]string
	states            map[string]driver.State
	adopt             map[string]driver.State
}

// table returns the keys of the table.
func (s *shape) table() layout { return layout{pk: s.pk, sk: s.sk, ttl: s.ttl} }

// shape checks a layout and fills in its defaults.
func (o Options) shape() (*shape, error) {
	l := o.Layout
	s := &shape{
		pk: l.PartitionKey, sk: l.SortKey, sortValue: l.SortValue, gateKey: o.GateKey, text: l.Text, prefix: l.Prefix,
		adopt: l.Adopt, names: map[string]string{}, status: map[driver.State]string{}, states: map[string]driver.State{},
	}
	if s.pk == "" {
		s.pk = "pk"
		if s.sk == "" {
			s.sk = "sk"
		}
	} else if s.prefix == "" {
		s.prefix = "semel_"
	}
	if s.sk == "" && s.sortValue != "" {
		return s, errors.New("Layout.SortValue without Layout.SortKey: name the sort key, or leave both empty")
	}
	if s.sk != "" && s.sortValue == "" {
		s.sortValue = "record"
	}
	if s.gateKey == "" {
		s.gateKey = s.pk
	}
	return s, errors.Join(s.nameAttributes(&l), s.nameStates(&l))
}

// nameAttributes gives every attribute its name in the table.
func (s *shape) nameAttributes(l *Layout) error {
	taken := map[string]string{s.pk: "the partition key", s.sk: "the sort key"}
	renamed := maps.Clone(l.Names)
	if renamed == nil {
		renamed = map[string]string{}
	}
	for name, value := range map[string]string{"state": l.Status, "ttl": l.TTL} {
		if value != "" {
			renamed[name] = value
		}
	}
	for _, name := range attributeNames() {
		s.names[name] = s.prefix + name
		if r, ok := renamed[name]; ok {
			s.names[name] = r
		}
		delete(renamed, name)
		if other, ok := taken[s.names[name]]; ok || s.names[name] == "" {
			return fmt.Errorf("attribute %q is both %q and %s: rename one of them in Layout.Names", s.names[name], name, other)
		}
		taken[s.names[name]] = "\"" + name + "\""
	}
	for name := range renamed {
		return fmt.Errorf("Layout.Names has %q, which no record has: the names are %s", name, strings.Join(attributeNames(), ", "))
	}
	s.ttl = s.names["ttl"]
	return nil
}

// nameStates gives every state its text.
func (s *shape) nameStates(l *Layout) error {
	for st := driver.InProgress; st <= driver.Uncertain; st++ {
		text := l.Statuses[st]
		if text == "" {
			text = st.String()
		}
		if other, ok := s.states[text]; ok {
			return fmt.Errorf("Layout.Statuses calls both %v and %v %q: give each its own text", other, st, text)
		}
		s.status[st], s.states[text] = text, st
	}
	return nil
}
