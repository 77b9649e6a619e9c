package key

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const strategyForms = "once, version:PLACE, timestamp:PLACE,PLACE, sequence:PLACE,gap=park:30s, sequencer:PLACE or text:PLACE, " +
	"where PLACE is a JSON Pointer (/version) or header:NAME"

// ParseVersions returns the Versions for a text form, as the worker's flag --strategy accepts it:
//
//	once                                    each key takes effect once (nil)
//	version:/version                        ByVersion
//	timestamp:/updated_at,/id               ByTimestamp, with ties
//	sequence:/seq                           BySequence: gaps are accepted
//	sequence:/seq,gap=park:30s,first=1      and Park, First
//	sequencer:/Records/0/s3/object/sequencer    sequencers of S3 events, which order those of one object: the
//	                                        key must be bucket and object
//	text:/ulid                              texts that compare byte by byte: ULIDs, numbers of a fixed width
//
// header:NAME may replace a pointer: version:header:x-version. A pointer or name cannot contain a comma here. Any other text is
// a *SpecError with a hint.
func ParseVersions(text string) (*Versions, error) {
	if text == "once" {
		return nil, nil //nolint:nilnil // nil means no versions
	}
	kind, rest, ok := strings.Cut(text, ":")
	switch kind {
	case kindVersion, kindTimestamp, kindSequence, kindSequencer, kindText:
	default:
		return nil, strategyError(fmt.Sprintf("%q is none of its forms", text), "write "+strategyForms)
	}
	if !ok || rest == "" {
		return nil, strategyError(fmt.Sprintf("%q names no place", text), "write "+kind+":/POINTER or "+kind+":header:NAME")
	}
	var places, options []string
	for _, part := range strings.Split(rest, ",") {
		if strings.HasPrefix(part, "/") || strings.HasPrefix(part, "header:") || !strings.Contains(part, "=") {
			places = append(places, part)
		} else {
			options = append(options, part)
		}
	}
	if len(places) == 0 || len(places) > 1 && kind != kindTimestamp {
		return nil, strategyError(fmt.Sprintf("%q names %d places", text, len(places)), "name one; only timestamp takes ties")
	}
	v, err := newVersions(kind, places...)
	if err != nil {
		return nil, err
	}
	for _, o := range options {
		if kind != kindSequence {
			return nil, strategyError(fmt.Sprintf("%q has the option %q", text, o), "leave it out; only sequence takes gap= and first=")
		}
		if err := v.option(o); err != nil {
			return nil, err
		}
	}
	if v.Park == 0 && strings.Contains(rest, ",first=") {
		return nil, strategyError("first= is of no use while gaps are accepted", "add gap=park:30s")
	}
	return v, nil
}

// option reads gap=accept, gap=park:30s and first=N.
func (v *Versions) option(o string) error {
	name, value, _ := strings.Cut(o, "=")
	switch name {
	case "gap":
		how, limit, _ := strings.Cut(value, ":")
		if value == "accept" {
			return nil
		}
		d, err := time.ParseDuration(limit)
		if how != "park" || err != nil || d <= 0 {
			return strategyError(fmt.Sprintf("%q is no gap policy", o), "write gap=accept, or gap=park:30s with the longest wait")
		}
		v.Park = d
	case "first":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return strategyError(fmt.Sprintf("%q is no beginning of a sequence", o), "write first=1")
		}
		v.First = n
	default:
		return strategyError(fmt.Sprintf("%q is no option", o), "write gap=park:30s or first=1")
	}
	return nil
}

func strategyError(problem, hint string) error { return &SpecError{"Versions", problem, hint} }
