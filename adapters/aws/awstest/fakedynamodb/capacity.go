package fakedynamodb

import (
	"maps"
	"slices"
)

// Units are calls of operations and the capacity units that they consumed.
type Units struct {
	Calls       int
	Read, Write float64
}

func (u Units) plus(v Units) Units {
	return Units{Calls: u.Calls + v.Calls, Read: u.Read + v.Read, Write: u.Write + v.Write}
}

// use adds to what the request consumes of a table.
func (r *request) use(table string, u Units) {
	if r.sums[table] == nil {
		r.sums[table] = &Units{Calls: 1}
	}
	*r.sums[table] = r.sums[table].plus(u)
}

func (s *Server) count(table, op string, u Units) {
	if s.used[table] == nil {
		s.used[table] = map[string]Units{}
	}
	s.used[table][op] = s.used[table][op].plus(u)
}

// Used is what every operation consumed, of all tables, since the start or ResetUsed. Refused calls count.
func (s *Server) Used() map[string]Units {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := maps.Clone(s.used[""])
	if out == nil {
		out = map[string]Units{}
	}
	for table, ops := range s.used {
		for op, u := range ops {
			if table != "" {
				out[op] = out[op].plus(Units{Read: u.Read, Write: u.Write})
			}
		}
	}
	return out
}

// UsedOf is what every operation consumed of one table; a call on several tables counts for each.
func (s *Server) UsedOf(table string) map[string]Units {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[table] == nil || table == "" {
		return map[string]Units{}
	}
	return maps.Clone(s.used[table])
}

// ResetUsed forgets what was consumed.
func (s *Server) ResetUsed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = map[string]map[string]Units{}
}

// writeUnits are the units of a write: one for every started KB of the larger of the item before and after.
func writeUnits(before, after item) float64 {
	return float64(max(1, (max(before.size(), after.size())+1023)/1024))
}

// readUnits are the units of a read: one for every started 4 KB, half of it when it may be stale.
func readUnits(bytes int, consistent bool) float64 {
	n := float64(max(1, (bytes+4095)/4096))
	if consistent {
		return n
	}
	return n / 2
}

// consumption checks ReturnConsumedCapacity.
func consumption(mode string) error {
	return enum(mode, "returnConsumedCapacity", "", "INDEXES", "TOTAL", "NONE")
}

// enum refuses all but the given values; "" among them is the default.
func enum(v, member string, values ...string) error {
	if slices.Contains(values, v) {
		return nil
	}
	if values[0] == "" {
		values = values[1:]
	}
	list := ""
	for i, s := range values {
		if i > 0 {
			list += ", "
		}
		list += s
	}
	return invalid(
		"1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: Member must satisfy enum value set: [%s]",
		v, member, list)
}

// consumed is the ConsumedCapacity of one table, nil when it was not asked for.
func (r *request) consumed(mode, table string, split bool) map[string]any {
	if mode == "" || mode == "NONE" {
		return nil
	}
	u := r.sums[table]
	out := capacity(u, split)
	out["TableName"] = table
	if mode == "INDEXES" {
		out["Table"] = capacity(u, split)
	}
	return out
}

// capacity is the sum of units; transactions tell reads and writes apart.
func capacity(u *Units, split bool) map[string]any {
	out := map[string]any{"CapacityUnits": u.Read + u.Write}
	if split && u.Read > 0 {
		out["ReadCapacityUnits"] = u.Read
	}
	if split && u.Write > 0 {
		out["WriteCapacityUnits"] = u.Write
	}
	return out
}

// consumedAll are the ConsumedCapacity of all tables of a request.
func (r *request) consumedAll(out map[string]any, mode string, split bool) {
	if mode == "" || mode == "NONE" {
		return
	}
	var all []any
	for _, table := range slices.Sorted(maps.Keys(r.sums)) {
		all = append(all, r.consumed(mode, table, split))
	}
	out["ConsumedCapacity"] = all
}
