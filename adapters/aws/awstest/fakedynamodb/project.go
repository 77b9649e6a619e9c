package fakedynamodb

import (
	"cmp"
	"slices"
	"strconv"
)

func number(n int) value { return value{kind: "N", text: strconv.Itoa(n)} }

// project is the part of an item that paths name. Elements of lists close up, in their order.
func project(it item, paths []path) item {
	root := &branch{}
	for _, p := range paths {
		if _, ok, _ := p.get(it); ok { // a path alone has no error
			root.grow(p)
		}
	}
	if len(root.steps) == 0 {
		return item{}
	}
	return root.cut(value{kind: "M", m: it}).m
}

// branch is a tree of paths.
type branch struct {
	steps []step
	under []*branch
}

func (b *branch) grow(p path) {
	if len(p) == 0 {
		return
	}
	i := slices.Index(b.steps, p[0])
	if i < 0 {
		b.steps, b.under, i = append(b.steps, p[0]), append(b.under, &branch{}), len(b.steps)
	}
	b.under[i].grow(p[1:])
}

func (b *branch) cut(v value) value {
	if len(b.steps) == 0 {
		return v
	}
	out := value{kind: v.kind}
	if v.kind == "M" {
		out.m = item{}
		for i, s := range b.steps {
			out.m[s.name] = b.under[i].cut(v.m[s.name])
		}
		return out
	}
	order := make([]int, len(b.steps))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Compare(b.steps[x].at, b.steps[y].at) })
	for _, i := range order {
		out.list = append(out.list, b.under[i].cut(v.list[b.steps[i].at]))
	}
	return out
}
