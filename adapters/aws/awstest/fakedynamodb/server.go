package fakedynamodb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/internal/awsjson"
)

// Options configure a server.
type Options struct {
	// Clock is the time; nil is the machine's.
	Clock *awstest.Clock
	// TTLLag is how long expired items stay, as the service deletes them within days. 0 = 48 hours; below 0 they stay until
	// DeleteExpired.
	TTLLag time.Duration
	// CreateLag is how long a new table is CREATING, when its items cannot be used.
	CreateLag time.Duration
	// Stale is the probability that an eventually consistent read sees the version before the last write of an item.
	Stale float64
	// StaleFor is how long after the write it may; 0 = one second.
	StaleFor time.Duration
	// Seed is the seed of what Stale leaves to chance.
	Seed uint64
}

// Server is a DynamoDB, an http.Handler. Its methods may be called concurrently; operations are carried out one after the
// other, so that every one is atomic and transactions are serialisable.
type Server struct {
	o       Options
	service awsjson.Service

	mu        sync.Mutex
	chance    *rand.Rand
	tables    map[string]*table
	tokens    map[string]*replay
	used      map[string]map[string]Units // by table and operation; table "" = calls
	conflicts int
	conflict  func(op, table string, key Item) bool
}

// New starts a server without tables.
func New(o Options) *Server {
	if o.Clock == nil {
		o.Clock = awstest.System()
	}
	if o.TTLLag == 0 {
		o.TTLLag = 48 * time.Hour
	}
	if o.StaleFor == 0 {
		o.StaleFor = time.Second
	}
	s := &Server{
		o: o, tables: map[string]*table{}, tokens: map[string]*replay{}, used: map[string]map[string]Units{},
		chance: rand.New(rand.NewPCG(o.Seed, 1)),
	}
	s.service = awsjson.Service{
		Target: "DynamoDB_20120810", ContentType: "application/x-amz-json-1.0", MaxBody: 20 << 20, Checksum: true,
		Operations: map[string]awsjson.Operation{
			"CreateTable":        op(s, "CreateTable", (*request).createTable),
			"DescribeTable":      op(s, "DescribeTable", (*request).describeTable),
			"DeleteTable":        op(s, "DeleteTable", (*request).deleteTable),
			"ListTables":         op(s, "ListTables", (*request).listTables),
			"UpdateTimeToLive":   op(s, "UpdateTimeToLive", (*request).updateTimeToLive),
			"DescribeTimeToLive": op(s, "DescribeTimeToLive", (*request).describeTimeToLive),
			"GetItem":            op(s, "GetItem", (*request).getItem),
			"PutItem":            op(s, "PutItem", (*request).single),
			"UpdateItem":         op(s, "UpdateItem", (*request).single),
			"DeleteItem":         op(s, "DeleteItem", (*request).single),
			"Query":              op(s, "Query", (*request).query),
			"Scan":               op(s, "Scan", (*request).scan),
			"BatchGetItem":       op(s, "BatchGetItem", (*request).batchGet),
			"BatchWriteItem":     op(s, "BatchWriteItem", (*request).batchWrite),
			"TransactGetItems":   op(s, "TransactGetItems", (*request).transactGet),
			"TransactWriteItems": op(s, "TransactWriteItems", (*request).transactWrite),
		},
	}
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.service.ServeHTTP(w, r) }

// request is one operation while it is carried out, under the server's lock.
type request struct {
	s    *Server
	op   string
	now  time.Time
	sums map[string]*Units // by table
}

// op makes an operation of a method. Unknown members are refused: ignoring them could change the meaning of a request.
func op[I any](s *Server, name string, do func(r *request, in I) (any, error)) awsjson.Operation {
	return func(ctx context.Context, body []byte) (any, error) {
		var in I
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		err := d.Decode(&in)
		if _, behind := d.Token(); err == nil && !errors.Is(behind, io.EOF) {
			err = serialization("there is something behind the end of the request")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.count("", name, Units{Calls: 1})
		if err != nil {
			return nil, decodeError(name, err)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r := &request{s: s, op: name, now: s.o.Clock.Now(), sums: map[string]*Units{}}
		s.sweep(r.now, s.o.TTLLag)
		out, err := do(r, in)
		for table, u := range r.sums {
			s.count(table, name, *u)
		}
		return out, err
	}
}

func decodeError(name string, err error) error {
	if e := (*awsjson.Error)(nil); errors.As(err, &e) {
		return e
	}
	if member, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return invalid("fakedynamodb does not have the parameter %s of %s: use expressions, and no secondary indexes", member, name)
	}
	return serialization("%v", err)
}

// table finds a table that can be used.
func (r *request) table(name string) (*table, error) {
	t := r.s.tables[name]
	if err := tableName(name); err != nil {
		return nil, err
	}
	if t == nil || r.now.Before(t.active) {
		return nil, notFound("Requested resource not found")
	}
	r.use(t.name, Units{})
	return t, nil
}

func tableName(name string) error {
	bad := len(name) < 3 || len(name) > 255 || strings.ContainsFunc(name, func(c rune) bool {
		return c >= 0x80 || !inWord(byte(c)) && c != '-' && c != '.'
	})
	if bad {
		return invalid(
			"Invalid table/index name.  Table/index names must be between 3 and 255 characters long, and may contain only the characters a-z, A-Z, 0-9, '_', '-', and '.'")
	}
	return nil
}

// version is the item that a read sees.
func (r *request) version(row *row, consistent bool) item {
	if !consistent && r.s.o.Stale > 0 && r.now.Sub(row.written) < r.s.o.StaleFor && r.s.chance.Float64() < r.s.o.Stale {
		return row.before
	}
	return row.now
}

func (r *request) read(t *table, p place, consistent bool) item {
	if i, ok := t.find(p); ok {
		return r.version(t.rows[i], consistent)
	}
	return nil
}
