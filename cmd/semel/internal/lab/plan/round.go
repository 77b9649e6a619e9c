package plan

import "fmt"

// Round is the load once more, for runs that go on: round 0 is the plan's own, each later one has keys and ids of its own,
// and work of its own seed. What is sent when all is done comes at its end. It is the same for both guards.
func (s Scenario) Round(seed uint64, n int) []Send {
	p := s.Plan(seed+uint64(n)*1_000_003, GuardOff)
	all := append(p.Sends[:len(p.Sends):len(p.Sends)], p.Later...)
	if n == 0 {
		return all
	}
	rename := func(name string) string { return fmt.Sprintf("r%d-%s", n+1, name) }
	for i := range all {
		one := &all[i]
		one.Key, one.ID = rename(one.Key), rename(one.ID)
		one.Items, one.Bad = each(one.Items, rename), each(one.Bad, rename)
	}
	return all
}

func each(names []string, f func(string) string) (out []string) {
	for _, n := range names {
		out = append(out, f(n))
	}
	return out
}
