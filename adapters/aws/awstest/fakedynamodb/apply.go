package fakedynamodb

import (
	"cmp"
	"maps"
	"slices"
)

// write is a change whose value is known: what to put at a path, or nothing.
type write struct {
	at   path
	v    value
	gone bool
}

// apply makes the item after changes. All operands are read from the item before.
func apply(before item, changes []change) (item, error) {
	writes := make([]write, 0, len(changes))
	for _, c := range changes {
		w, skip, err := c.resolve(before)
		if err != nil {
			return nil, err
		}
		if !skip {
			writes = append(writes, w)
		}
	}
	// Indices are those of the item before: elements are put first, those behind the end in their order, and taken out from
	// the last to the first.
	slices.SortStableFunc(writes, func(a, b write) int {
		if a.gone != b.gone {
			return boolInt(a.gone) - boolInt(b.gone)
		}
		d := slices.CompareFunc(a.at, b.at, func(x, y step) int { return cmp.Compare(x.at, y.at) })
		if a.gone {
			return -d
		}
		return d
	})
	root := value{kind: "M", m: maps.Clone(before)}
	if root.m == nil && len(writes) > 0 {
		root.m = item{}
	}
	for _, w := range writes {
		if len(w.at) == 1 && w.at[0].at < 0 { // of the copy: most changes are of this kind
			if w.gone {
				delete(root.m, w.at[0].name)
			} else {
				root.m[w.at[0].name] = w.v
			}
			continue
		}
		var err error
		if root, err = w.into(root, w.at); err != nil {
			return nil, err
		}
	}
	return root.m, nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// resolve finds the value that a change puts. skip: there is nothing to do.
func (c change) resolve(before item) (w write, skip bool, err error) {
	w = write{at: c.at, gone: c.verb == "REMOVE"}
	if w.gone {
		return w, false, nil
	}
	if c.verb == "SET" {
		w.v, err = need(c.to, before)
		return w, false, err
	}
	operand := c.to.(constant).v
	old, ok, _ := c.at.get(before) // a path alone has no error
	switch {
	case !ok:
		w.v = operand
		return w, c.verb == "DELETE", nil
	case old.kind != operand.kind:
		return w, false, atRun("%s", errOperand)
	case operand.kind == "N":
		w.v, _, err = added(old, operand, false)
	case c.verb == "ADD":
		w.v = value{kind: old.kind, set: slices.Clone(old.set)}
		for _, s := range operand.set {
			if !slices.Contains(old.set, s) {
				w.v.set = append(w.v.set, s)
			}
		}
	default:
		w.v = value{kind: old.kind, set: slices.DeleteFunc(slices.Clone(old.set),
			func(s string) bool { return slices.Contains(operand.set, s) })}
		w.gone = len(w.v.set) == 0 // there are no empty sets
	}
	return w, false, err
}

// into returns v with the write in it. Values that are not on the path are shared.
func (w write) into(v value, at path) (value, error) {
	s, rest := at[0], at[1:]
	if s.at < 0 {
		if v.kind != "M" {
			return v, atRun("%s", errPath)
		}
		inside, ok := v.m[s.name]
		if len(rest) > 0 {
			return w.deeper(v, inside, ok, rest, func(n value) value { return v.withField(s.name, n) })
		}
		if !w.gone {
			return v.withField(s.name, w.v), nil
		}
		m := maps.Clone(v.m)
		delete(m, s.name)
		return value{kind: "M", m: m}, nil
	}
	if v.kind != "L" {
		return v, atRun("%s", errPath)
	}
	there := s.at < len(v.list)
	switch {
	case len(rest) > 0:
		inside := value{}
		if there {
			inside = v.list[s.at]
		}
		return w.deeper(v, inside, there, rest, func(n value) value { return v.withElement(s.at, n) })
	case w.gone && !there:
		return v, nil
	case w.gone:
		return value{kind: "L", list: slices.Delete(slices.Clone(v.list), s.at, s.at+1)}, nil
	}
	return v.withElement(s.at, w.v), nil
}

// deeper writes into an element of v, which must exist.
func (w write) deeper(v, inside value, there bool, rest path, put func(value) value) (value, error) {
	if !there {
		return v, atRun("%s", errPath)
	}
	n, err := w.into(inside, rest)
	if err != nil {
		return v, err
	}
	return put(n), nil
}

func (v value) withField(name string, n value) value {
	m := maps.Clone(v.m)
	if m == nil {
		m = item{}
	}
	m[name] = n
	return value{kind: "M", m: m}
}

// withElement puts an element; behind the end it is appended.
func (v value) withElement(at int, n value) value {
	l := slices.Clone(v.list)
	if at >= len(l) {
		return value{kind: "L", list: append(l, n)}
	}
	l[at] = n
	return value{kind: "L", list: l}
}
