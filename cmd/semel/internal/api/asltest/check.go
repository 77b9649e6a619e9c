package asltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// fields are what states of a type may have beside type and comment, and what they must have.
var fields = map[string]struct{ may, must []string }{
	"Pass":     {may: []string{"Parameters", "Result", "ResultPath", "Next", "End"}},
	"Task":     {may: []string{"Parameters", "ResultSelector", "ResultPath", "TimeoutSeconds", "Retry", "Catch", "Next", "End"}, must: []string{"Resource"}},
	"Choice":   {may: []string{"Default"}, must: []string{"Choices"}},
	"Wait":     {may: []string{"Seconds", "SecondsPath", "Next", "End"}},
	"Parallel": {may: []string{"ResultPath", "Retry", "Catch", "Next", "End"}, must: []string{"Branches"}},
	"Succeed":  {},
	"Fail":     {must: []string{"Error", "Cause"}},
}

// resources are the tasks that Run knows.
var resources = []string{httpTask, lambdaTask, ecsTask}

const (
	httpTask   = "arn:aws:states:::http:invoke"
	lambdaTask = "arn:aws:states:::lambda:invoke"
	ecsTask    = "arn:aws:states:::ecs:runTask.sync"
)

// Check reports everything that is wrong with a machine: fields that its states' types do not have, names that lead nowhere,
// states that nothing leads to or that nothing leads out of, comparisons, paths and error lists that are none.
func (m *Machine) Check() error {
	var errs []error
	bad := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf("state %s: %s", name, fmt.Sprintf(format, args...)))
	}
	if m.States[m.StartAt] == nil {
		errs = append(errs, fmt.Errorf("StartAt %q is no state", m.StartAt))
	}
	for _, name := range slices.Sorted(maps.Keys(m.States)) {
		s := m.States[name]
		say := func(format string, args ...any) { bad(name, format, args...) }
		s.checkFields(say)
		s.checkRules(say)
		for _, next := range s.targets() {
			if m.States[next] == nil {
				say("leads to %q, which is no state", next)
			}
		}
		for i, b := range s.Branches {
			if err := b.Check(); err != nil {
				say("branch %d: %v", i, err)
			}
		}
	}
	reached := m.reach([]string{m.StartAt}, func(n string) []string { return m.States[n].targets() })
	for name := range m.States {
		if !reached[name] {
			bad(name, "nothing leads to it")
		}
		ends := m.reach([]string{name}, func(n string) []string { return m.States[n].targets() })
		if !slices.ContainsFunc(slices.Collect(maps.Keys(ends)), func(n string) bool { return m.States[n] != nil && m.States[n].terminal() }) {
			bad(name, "nothing leads from it to an end")
		}
	}
	return errors.Join(errs...)
}

// reach is everything that can be reached.
func (m *Machine) reach(from []string, next func(string) []string) map[string]bool {
	seen := map[string]bool{}
	for len(from) > 0 {
		n := from[0]
		from = from[1:]
		if seen[n] || m.States[n] == nil {
			continue
		}
		seen[n] = true
		from = append(from, next(n)...)
	}
	return seen
}

func (s *State) terminal() bool { return s.End || s.Type == "Succeed" || s.Type == "Fail" }

// targets are where a state can lead.
func (s *State) targets() (out []string) {
	for _, c := range s.Choices {
		out = append(out, c.Next)
	}
	for _, c := range s.Catch {
		out = append(out, c.Next)
	}
	for _, n := range []string{s.Next, s.Default} {
		if n != "" {
			out = append(out, n)
		}
	}
	return out
}

func (s *State) checkFields(bad func(string, ...any)) {
	kind, known := fields[s.Type]
	if !known {
		bad("type %q is not known", s.Type)
		return
	}
	b, _ := json.Marshal(s) // it was read from JSON
	var has map[string]any
	_ = json.Unmarshal(b, &has)
	for name, v := range has {
		empty := v == nil && !(name == "ResultPath" && s.ResultPath != nil) || v == "" || v == false || v == 0.0
		if name == "Type" || name == "Comment" || empty {
			continue
		}
		if !slices.Contains(kind.may, name) && !slices.Contains(kind.must, name) {
			bad("a %s has no %s", s.Type, name)
		}
	}
	for _, name := range kind.must {
		if v := has[name]; v == nil || v == "" {
			bad("a %s needs %s", s.Type, name)
		}
	}
	ends := s.Type == "Choice" || s.Type == "Succeed" || s.Type == "Fail"
	if !ends && (s.Next != "") == s.End {
		bad("needs either Next or End")
	}
	if s.Type == "Wait" && (s.Seconds > 0) == (s.SecondsPath != "") {
		bad("needs either Seconds or SecondsPath")
	}
	if s.Type == "Task" && !slices.Contains(resources, s.Resource) {
		bad("resource %s is not known", s.Resource)
	}
}

var pathSyntax = regexp.MustCompile(`^\$\$?(\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]+\])*$`)

func (s *State) checkRules(bad func(string, ...any)) {
	isPath := func(p string) {
		if !pathSyntax.MatchString(p) {
			bad("%q is no path", p)
		}
	}
	for _, c := range s.Choices {
		isPath(c.Variable)
		n := 0
		for _, given := range []bool{c.BooleanEquals != nil, c.StringEquals != nil, c.NumericLessThan != nil} {
			if given {
				n++
			}
		}
		if n != 1 {
			bad("a choice has %d comparisons", n)
		}
	}
	if s.Type == "Choice" && s.Default == "" {
		bad("has no Default: what matches no rule would fail")
	}
	var lists [][]string
	for _, r := range s.Retry {
		lists = append(lists, r.ErrorEquals)
		if r.IntervalSeconds < 1 || r.BackoffRate < 1 || r.MaxAttempts < 0 {
			bad("a retrier is out of range: %+v", r)
		}
	}
	for i, c := range s.Catch {
		lists = append(lists, c.ErrorEquals)
		isPath(c.ResultPath)
		if slices.Contains(c.ErrorEquals, all) && i != len(s.Catch)-1 {
			bad("%s is not the last catcher", all)
		}
	}
	for _, l := range lists {
		if len(l) == 0 || slices.Contains(l, all) && len(l) > 1 {
			bad("errors %v: name some, or %s alone", l, all)
		}
	}
	if s.SecondsPath != "" {
		isPath(s.SecondsPath)
	}
	for _, raw := range []json.RawMessage{s.Parameters, s.ResultSelector} {
		if err := checkTemplate(raw); err != nil {
			bad("%v", err)
		}
	}
}

// checkTemplate reads all expressions of a payload template.
func checkTemplate(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	if _, object := v.(map[string]any); !object {
		return errors.New("a template has to be an object")
	}
	var errs []error
	walk(v, func(name string, v any) {
		text, isText := v.(string)
		if !strings.HasSuffix(name, ".$") {
			if isText && strings.HasPrefix(text, "$") {
				errs = append(errs, fmt.Errorf("%s: %q is a path, and the name does not end in .$", name, text))
			}
			return
		}
		if !isText {
			errs = append(errs, fmt.Errorf("%s has no expression", name))
		} else if _, err := parse(text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	})
	return errors.Join(errs...)
}

func walk(v any, member func(name string, v any)) {
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			member(name, x)
			walk(x, member)
		}
	case []any:
		for _, x := range v {
			walk(x, member)
		}
	}
}
