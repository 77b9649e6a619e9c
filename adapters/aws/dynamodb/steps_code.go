package dynamodb

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/driver"
)

// A journal is stored in the item of its record: attributes x_stepsEPOCH.VERSION.PAGE, lists of stepPage rows each, in the
// order of their numbers. A write replaces only the pages of its rows, so neither requests nor expressions grow with the
// journal.

const (
	stepMark = extraMark + "steps"
	stepPage = 32
)

// runID names one journal of a record.
type runID struct {
	epoch   uint32
	version driver.Version
}

func runOf(h *driver.Hold) runID { return runID{h.Epoch, h.Version} }

func (id runID) prefix() string {
	return stepMark + strconv.FormatUint(uint64(id.epoch), 10) + "." + base64.RawURLEncoding.EncodeToString([]byte(id.version)) + "."
}

func (id runID) page(n int) string { return id.prefix() + strconv.Itoa(n) }

// versionOfPage returns the version of the journal that an attribute belongs to; ok is false if it belongs to none.
func versionOfPage(name string) (v driver.Version, ok bool) {
	rest, ok := strings.CutPrefix(name, stepMark)
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 {
		return "", false
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	return driver.Version(b), err == nil
}

// journal reads the rows of a run, in the order of their numbers.
func (r *row) journal(id runID) (steps []driver.Step, err error) {
	for n := 0; ; n++ {
		v, ok := r.extra[id.page(n)]
		if !ok {
			return steps, nil
		}
		l, ok := v.(*types.AttributeValueMemberL)
		if !ok {
			return nil, fmt.Errorf("attribute %s %w", id.page(n), errType(v, "a list"))
		}
		for _, x := range l.Value {
			st, err := decodeStep(x)
			if err != nil {
				return nil, fmt.Errorf("attribute %s: step %q: %w", id.page(n), st.Name, err)
			}
			st.Seq = len(steps) + 1
			steps = append(steps, st)
		}
	}
}

// withSteps returns the row with rows of a journal put. Journals of older versions are superseded and removed.
func (r row) withSteps(id runID, put []driver.Step) row {
	change := attrs{}
	if id.version != "" {
		for name := range r.extra {
			if v, ok := versionOfPage(name); ok && v < id.version {
				change[name] = nil
			}
		}
	}
	slices.SortFunc(put, func(a, b driver.Step) int { return cmp.Compare(a.Seq, b.Seq) })
	pages := map[int]*types.AttributeValueMemberL{}
	for i := range put {
		n, at := (put[i].Seq-1)/stepPage, (put[i].Seq-1)%stepPage
		page := pages[n]
		if page == nil {
			page = &types.AttributeValueMemberL{}
			if old, ok := r.extra[id.page(n)].(*types.AttributeValueMemberL); ok {
				page.Value = slices.Clone(old.Value)
			}
			pages[n], change[id.page(n)] = page, page
		}
		if v := encodeStep(&put[i]); at < len(page.Value) {
			page.Value[at] = v
		} else {
			page.Value = append(page.Value, v)
		}
	}
	return r.withExtra(change)
}

func encodeStep(s *driver.Step) types.AttributeValue {
	m := attrs{
		"name": text(s.Name), "state": number(s.State), "token": number(s.Token), "nonce": binary(s.Nonce[:]),
		"at": number(s.UpdatedAt.UnixMicro()),
	}
	if s.Undo {
		m["undo"] = &types.AttributeValueMemberBOOL{Value: true}
	}
	if len(s.Result) > 0 {
		m["result"] = binary(s.Result)
	}
	if s.Failures > 0 {
		m["failures"] = number(s.Failures)
	}
	if s.Reason != "" {
		m["reason"] = text(s.Reason)
	}
	return &types.AttributeValueMemberM{Value: m}
}

func decodeStep(v types.AttributeValue) (s driver.Step, err error) {
	m, ok := v.(*types.AttributeValueMemberM)
	if !ok {
		return s, errType(v, "a map")
	}
	f := fieldReader{m: m.Value}
	s = driver.Step{
		Name: f.text("name"), State: driver.StepState(f.number("state")), Undo: f.flag("undo"), Token: uint64(f.number("token")),
		Result: f.bytes("result"), Failures: int(f.number("failures")), Reason: f.text("reason"),
		UpdatedAt: time.UnixMicro(f.number("at")),
	}
	copy(s.Nonce[:], f.bytes("nonce"))
	if s.State == 0 || s.State > driver.RunCompensating {
		f.err = errors.Join(f.err, fmt.Errorf("state %d is unknown", s.State))
	}
	return s, f.err
}

// fieldReader reads the fields of a map; a missing field is zero. err is about the first field of a wrong type.
type fieldReader struct {
	m   attrs
	err error
}

func (f *fieldReader) fail(name string, err error) {
	if err != nil && f.err == nil {
		f.err = fmt.Errorf("field %s %w", name, err)
	}
}

func (f *fieldReader) text(name string) string {
	s, err := asText(f.m[name])
	f.fail(name, err)
	return s
}

func (f *fieldReader) number(name string) int64 {
	v, ok := f.m[name]
	if !ok {
		return 0
	}
	if n, err := asInt(v); err == nil {
		return n
	}
	n, err := asUint(v) // a token beyond the signed numbers
	f.fail(name, err)
	return int64(n) //nolint:gosec // read back as unsigned
}

func (f *fieldReader) bytes(name string) []byte {
	v, ok := f.m[name]
	if !ok {
		return nil
	}
	b, err := asBytes(v)
	f.fail(name, err)
	return b
}

func (f *fieldReader) flag(name string) bool {
	v, ok := f.m[name]
	if !ok {
		return false
	}
	b, ok := v.(*types.AttributeValueMemberBOOL)
	if !ok {
		f.fail(name, errType(v, "a boolean"))
		return false
	}
	return b.Value
}
