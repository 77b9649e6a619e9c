package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/semel-dev/semel/driver"
)

// scanned selects what a scan returns. DynamoDB reads, and bills, the whole table.
type scanned struct {
	consumer string       // "" = all
	state    driver.State // Absent = all
	// extra is an attribute of row.extra that the items must have, and that is read too. Without it neither journal nor
	// audit log is read.
	extra string
	// eventual reads data that may be a second old, at half the price, for callers that check again before they write.
	eventual bool
}

// page is a page of the table.
type page struct {
	rows []row
	next attrs   // its last item, nil after the last page
	bad  []error // of the items that cannot be read: one broken item must not hide all others
	// ahead is how far this machine's clock is at least ahead of the service's.
	ahead time.Duration
}

// page reads the page of the table after an item; from nil = the first page.
func (s *Store) page(ctx context.Context, sel scanned, from attrs) (p page, err error) {
	e := newExpression()
	e.and("attribute_exists(" + e.name(s.shape.names["rev"]) + ")")
	if sel.consumer != "" {
		e.and(e.name(s.shape.names["consumer"]) + " = " + e.value(text(sel.consumer)))
	}
	if sel.state != driver.Absent {
		e.and(e.name(s.shape.names["state"]) + " = " + e.value(text(s.shape.status[sel.state])))
	}
	wanted := []string{e.name(s.shape.pk)}
	if s.shape.sk != "" {
		wanted = append(wanted, e.name(s.shape.sk))
	}
	for _, name := range attributeNames() {
		wanted = append(wanted, e.name(s.shape.names[name]))
	}
	if sel.extra != "" {
		p := e.name(s.shape.prefix + sel.extra)
		e.and("attribute_exists(" + p + ")")
		wanted = append(wanted, p)
	}
	in := &awsdynamodb.ScanInput{
		TableName: &s.table, ConsistentRead: aws.Bool(!sel.eventual), ExclusiveStartKey: from, FilterExpression: e.condition(),
		ProjectionExpression: aws.String(strings.Join(wanted, ", ")), ExpressionAttributeNames: e.names,
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}
	if len(e.values) > 0 {
		in.ExpressionAttributeValues = e.values
	}
	var out *awsdynamodb.ScanOutput
	r := s.repeater()
	if _, err := r.do(ctx, func(ctx context.Context) (err error) {
		sent := s.o.Clock()
		if out, err = s.client.Scan(ctx, in, once); err == nil {
			s.meter.read(capacity(out.ConsumedCapacity)...)
			p.ahead = aheadOf(sent, out.ResultMetadata)
		}
		return err
	}); err != nil {
		return p, explain(err, "Scan", s.table)
	}
	for _, item := range out.Items {
		r, err := s.shape.parse(item)
		if err != nil {
			p.bad = append(p.bad, fmt.Errorf("%w: %w", driver.ErrUnreadable, err))
			continue
		}
		p.rows = append(p.rows, r)
	}
	if len(out.LastEvaluatedKey) > 0 {
		p.next = out.LastEvaluatedKey
	}
	return p, nil
}

// aheadOf returns how far the clock that showed sent is ahead of the service's, whose time is in every response, in whole
// seconds; 0 if the response has none, or if the clock may be right.
func aheadOf(sent time.Time, meta middleware.Metadata) time.Duration {
	at, ok := awsmiddleware.GetServerTime(meta)
	if !ok {
		return 0
	}
	return max(0, sent.Sub(at)-time.Second)
}

// scan calls each with every selected record, a page of the table (1 MB) at a time, in no particular order. Those that cannot
// be read are its error at the end.
func (s *Store) scan(ctx context.Context, sel scanned, each func(r *row) error) error {
	var left driver.LeftOut
	for from := attrs(nil); ; {
		p, err := s.page(ctx, sel, from)
		if err != nil {
			return err
		}
		for _, err := range p.bad {
			_ = left.Add(err) // each is driver.ErrUnreadable
		}
		for i := range p.rows {
			if err := each(&p.rows[i]); err != nil {
				return err
			}
		}
		if from = p.next; from == nil {
			return left.Err()
		}
	}
}

// errEnough ends a scan.
var errEnough = errors.New("enough")

// ScanRecords calls each with every record that f selects, a page at a time. It reads the whole table, or as much as f.Limit
// needs. See [driver.RecordScanner].
func (s *Store) ScanRecords(ctx context.Context, f driver.RecordFilter, each func(driver.Record) error) error {
	n := 0
	var theirs error
	err := s.scan(ctx, scanned{consumer: f.Consumer, state: f.State}, func(r *row) error {
		if theirs = each(r.Record); theirs != nil {
			return theirs
		}
		if n++; f.Limit > 0 && n == f.Limit {
			return errEnough
		}
		return nil
	})
	switch {
	case theirs != nil:
		return theirs
	case err == nil || errors.Is(err, errEnough):
		return nil
	}
	return fmt.Errorf("scan records: %w", err)
}
