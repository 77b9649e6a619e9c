package fakedynamodb

import (
	"math/bits"
	"slices"
)

// maxPage is how much a Query or Scan looks at.
const maxPage = 1 << 20

// pageInput has the members that Query and Scan have in common.
type pageInput struct {
	TableName                 string
	ConsistentRead            bool
	ExclusiveStartKey         item
	ExpressionAttributeNames  map[string]string
	ExpressionAttributeValues item
	FilterExpression          *string
	Limit                     *int
	ProjectionExpression      *string
	ReturnConsumedCapacity    string
	Select                    string
}

type scanInput struct {
	pageInput
	Segment       *int
	TotalSegments *int
}

type queryInput struct {
	pageInput
	KeyConditionExpression *string
	ScanIndexForward       *bool
}

// page is one page of a Query or Scan while it is read.
type page struct {
	in     pageInput
	t      *table
	filter cond
	paths  []path
}

func (r *request) page(in pageInput, keyed *string) (*page, *keyCondition, error) {
	t, err := r.table(in.TableName)
	if err != nil {
		return nil, nil, err
	}
	if err := in.check(); err != nil {
		return nil, nil, err
	}
	valued := keyed != nil || in.FilterExpression != nil
	if in.ExpressionAttributeValues != nil && !valued {
		return nil, nil, invalid("ExpressionAttributeValues can only be specified when using expressions")
	}
	b, err := bind(in.ExpressionAttributeNames, in.ExpressionAttributeValues, valued || in.ProjectionExpression != nil)
	if err != nil {
		return nil, nil, err
	}
	p := &page{in: in, t: t}
	var key *keyCondition
	if keyed != nil {
		if key, err = t.keyCondition(*keyed, b); err != nil {
			return nil, nil, err
		}
	}
	if in.FilterExpression != nil {
		if p.filter, err = parseCondition("FilterExpression", *in.FilterExpression, b); err != nil {
			return nil, nil, err
		}
	}
	if p.paths, err = projection(in.ProjectionExpression, b); err != nil {
		return nil, nil, err
	}
	if name := keyInFilter(p.filter, t.keyNames()); name != "" && keyed != nil {
		return nil, nil, invalid("Filter Expression can only contain non-primary key attributes: Primary key attribute: %s", name)
	}
	return p, key, b.unused()
}

func (in pageInput) check() error {
	if err := consumption(in.ReturnConsumedCapacity); err != nil {
		return err
	}
	if in.Limit != nil && *in.Limit < 1 {
		return invalid(
			"1 validation error detected: Value '%d' at 'limit' failed to satisfy constraint: Member must have value greater than or equal to 1", *in.Limit)
	}
	if err := enum(in.Select, "select", "", "SPECIFIC_ATTRIBUTES", "COUNT", "ALL_ATTRIBUTES",
		"ALL_PROJECTED_ATTRIBUTES"); err != nil {
		return err
	}
	switch {
	case in.Select == "ALL_PROJECTED_ATTRIBUTES":
		return invalid(
			"One or more parameter values were invalid: ALL_PROJECTED_ATTRIBUTES can be used only when Querying using an IndexName")
	case in.Select == "SPECIFIC_ATTRIBUTES" && in.ProjectionExpression == nil:
		return invalid(
			"One or more parameter values were invalid: Must specify the AttributesToGet or ProjectionExpression when choosing to get SPECIFIC_ATTRIBUTES")
	case in.Select != "" && in.Select != "SPECIFIC_ATTRIBUTES" && in.ProjectionExpression != nil:
		return invalid("Cannot specify the ProjectionExpression when choosing to get %s", in.Select)
	}
	return nil
}

// walk reads rows until the page is full, and returns the response.
func (r *request) walk(p *page, rows func(yield func(*row) bool)) (any, error) {
	items, count, scanned, size := []item{}, 0, 0, 0
	var last, previous item
	for row := range rows {
		it := r.version(row, p.in.ConsistentRead)
		if it == nil {
			continue
		}
		n := it.size()
		if scanned > 0 && size+n > maxPage {
			last = previous
			break
		}
		size += n
		scanned++
		previous = p.t.keyOf(it)
		ok := true
		if p.filter != nil {
			var err error
			if ok, err = p.filter.eval(it); err != nil {
				return nil, err
			}
		}
		if ok {
			count++
			items = append(items, shown(it, p.paths))
		}
		if p.in.Limit != nil && scanned == *p.in.Limit {
			last = previous
			break
		}
	}
	r.use(p.t.name, Units{Read: readUnits(size, p.in.ConsistentRead)})
	out := map[string]any{"Count": count, "ScannedCount": scanned}
	if p.in.Select != "COUNT" {
		out["Items"] = items
	}
	if last != nil {
		out["LastEvaluatedKey"] = last
	}
	if c := r.consumed(p.in.ReturnConsumedCapacity, p.t.name, false); c != nil {
		out["ConsumedCapacity"] = c
	}
	return out, nil
}

// start returns where the page before ended.
func (p *page) start() (place, error) {
	at, err := p.t.key(p.in.ExclusiveStartKey)
	if err != nil {
		return at, invalid("The provided starting key is invalid: %s", messageOf(err))
	}
	return at, nil
}

func (r *request) scan(in scanInput) (any, error) {
	p, _, err := r.page(in.pageInput, nil)
	if err != nil {
		return nil, err
	}
	segment, total, err := in.segment()
	if err != nil {
		return nil, err
	}
	from := 0
	if in.ExclusiveStartKey != nil {
		at, err := p.start()
		if err != nil {
			return nil, err
		}
		if segmentOf(at.hash, total) != segment {
			return nil, invalid(
				"The provided starting key is invalid: Invalid ExclusiveStartKey. Please use ExclusiveStartKey with correct Segment. TotalSegments: %d Segment: %d", total, segment)
		}
		var found bool
		if from, found = p.t.find(at); found {
			from++
		}
	}
	return r.walk(p, func(yield func(*row) bool) {
		for _, row := range p.t.rows[from:] {
			if segmentOf(row.at.hash, total) == segment && !yield(row) {
				return
			}
		}
	})
}

func (in scanInput) segment() (segment, total int, err error) {
	switch {
	case in.Segment == nil && in.TotalSegments == nil:
		return 0, 1, nil
	case in.TotalSegments == nil:
		return 0, 0, invalid(
			"The TotalSegments parameter is required but was not present in the request when Segment parameter is present")
	case in.Segment == nil:
		return 0, 0, invalid(
			"The Segment parameter is required but was not present in the request when parameter TotalSegments is present")
	case *in.TotalSegments < 1 || *in.TotalSegments > 1000000:
		return 0, 0, invalid(
			"1 validation error detected: Value '%d' at 'totalSegments' failed to satisfy constraint: Member must have value between 1 and 1000000", *in.TotalSegments)
	case *in.Segment < 0 || *in.Segment >= *in.TotalSegments:
		return 0, 0, invalid(
			"The Segment parameter is zero-based and must be less than parameter TotalSegments: Segment: %d is not less than TotalSegments: %d", *in.Segment, *in.TotalSegments)
	}
	return *in.Segment, *in.TotalSegments, nil
}

// segmentOf is the segment of a parallel scan that a partition belongs to.
func segmentOf(hash uint64, total int) int {
	hi, _ := bits.Mul64(hash, uint64(total)) // between 1 and 1000000
	return int(hi)                           // below total
}

func (r *request) query(in queryInput) (any, error) {
	if in.KeyConditionExpression == nil {
		return nil, invalid("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.")
	}
	p, key, err := r.page(in.pageInput, in.KeyConditionExpression)
	if err != nil {
		return nil, err
	}
	var found []*row
	first, _ := p.t.find(place{hash: key.at.hash, partition: key.at.partition, sort: p.t.lowest()})
	for _, row := range p.t.rows[first:] {
		if row.at.partition != key.at.partition {
			break
		}
		if key.sort == nil || key.sort(row.at.sort) {
			found = append(found, row)
		}
	}
	backward := in.ScanIndexForward != nil && !*in.ScanIndexForward
	if backward {
		slices.Reverse(found)
	}
	if in.ExclusiveStartKey != nil {
		at, err := p.start()
		if err != nil {
			return nil, err
		}
		if at.partition != key.at.partition || key.sort != nil && !key.sort(at.sort) {
			return nil, invalid("The provided starting key is outside query boundaries based on provided conditions")
		}
		found = slices.DeleteFunc(found, func(r *row) bool {
			n := r.at.cmp(at)
			return n == 0 || (n < 0) != backward
		})
	}
	return r.walk(p, slices.Values(found))
}

// lowest is a sort key before all others.
func (t *table) lowest() value {
	switch {
	case len(t.keys) < 2:
		return value{}
	case t.keys[1].kind == "N":
		return value{kind: "N", text: mustNumber("-9.9999999999999999999999999999999999999E125").String()}
	}
	return value{kind: t.keys[1].kind}
}
