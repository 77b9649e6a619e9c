package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// machine is a state machine in the Amazon States Language (https://states-language.net/spec.html) with the states of
// its branches among its own.
type machine struct {
	start  string
	states map[string]*state
}

type branch struct {
	Comment, StartAt string
	States           map[string]*state
}

// state is one state, with the fields that the shipped machines use: any other is an error.
type state struct {
	Type, Comment, Next, Resource, Default, SecondsPath, ResultPath, Error, Cause string
	End                                                                           bool
	Parameters, ResultSelector                                                    json.RawMessage
	Result                                                                        struct{ Outcome string }
	Choices                                                                       []struct {
		Variable, Next  string
		BooleanEquals   *bool
		StringEquals    *string
		NumericLessThan *float64
	}
	Seconds, TimeoutSeconds int
	Retry                   []struct {
		ErrorEquals                                                []string
		IntervalSeconds, MaxDelaySeconds, BackoffRate, MaxAttempts float64
	}
	Catch []struct {
		ErrorEquals      []string
		ResultPath, Next string
	}
	Branches []branch

	has  []string // the fields that are there
	join *state   // the Parallel state whose result this end of its first branch is
}

func parse(b []byte) (*machine, error) {
	var top branch
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&top); err != nil {
		return nil, err
	}
	m := &machine{start: top.StartAt, states: map[string]*state{}}
	return m, m.add(top, nil)
}

// UnmarshalJSON refuses fields that state does not have.
func (s *state) UnmarshalJSON(b []byte) error {
	type plain state
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode((*plain)(s)); err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	err := json.Unmarshal(b, &fields)
	s.has = names(fields)
	return err
}

// add adds the states of a branch; join is the Parallel state that continues with the branch's result, if any.
func (m *machine) add(b branch, join *state) error {
	for name, s := range b.States {
		if m.states[name] != nil {
			return fmt.Errorf("two states are named %s", name)
		}
		m.states[name] = s
		if s.End {
			s.join = join
		}
		for i, inner := range s.Branches {
			var result *state
			if i == 0 {
				result = s
			}
			if err := m.add(inner, result); err != nil {
				return err
			}
		}
	}
	return nil
}

// fields are what states of a type may have beside Type and Comment.
var fields = map[string][]string{
	"Pass":     {"Parameters", "Result", "ResultPath", "Next", "End"},
	"Task":     {"Resource", "Parameters", "ResultSelector", "ResultPath", "TimeoutSeconds", "Retry", "Catch", "Next", "End"},
	"Choice":   {"Choices", "Default"},
	"Wait":     {"Seconds", "SecondsPath", "Next", "End"},
	"Parallel": {"Branches", "ResultPath", "Retry", "Catch", "Next", "End"},
	"Succeed":  {},
	"Fail":     {"Error", "Cause"},
}

// repeated are the errors of requests without a response, or with one of a gateway.
var repeated = []string{
	"States.Http.StatusCode.429", "States.Http.StatusCode.500", "States.Http.StatusCode.502", "States.Http.StatusCode.503",
	"States.Http.StatusCode.504", "States.Http.Socket",
}

func (s *state) calls(path string) bool {
	return s.Resource == "arn:aws:states:::http:invoke" && strings.Contains(string(s.Parameters), "/v1/"+path+`"`)
}

// releases reports whether a state releases the hold of $.claim or $.lock.
func (s *state) releases(what string) bool {
	return s.calls("release") && strings.Contains(string(s.Parameters), `"$.`+what+`.ResponseBody.hold"`)
}

// works reports whether a state runs the function or the job.
func (s *state) works() bool { return s.Type == "Task" && !strings.Contains(s.Resource, ":http:") }

func (s *state) ends() bool {
	return s.Type == "Succeed" || s.Type == "Fail" || s.End && s.join == nil
}

// edge is a way from a state to another. on is "next", "default", "catch ERROR", or a Choice's variable and the value
// that it is compared with.
type edge struct{ from, on, to string }

func (m *machine) edges(name string) (out []edge) {
	s := m.states[name]
	to := func(on, to string) { out = append(out, edge{name, on, to}) }
	for _, c := range s.Choices {
		on := c.Variable
		switch {
		case c.BooleanEquals != nil:
			on += fmt.Sprint(" ", *c.BooleanEquals)
		case c.StringEquals != nil:
			on += " " + *c.StringEquals
		}
		to(on, c.Next)
	}
	for _, c := range s.Catch {
		to("catch "+strings.Join(c.ErrorEquals, " "), c.Next)
	}
	for _, b := range s.Branches {
		to("branch", b.StartAt)
	}
	if s.Default != "" {
		to("default", s.Default)
	}
	switch {
	case s.Next != "" && s.Branches == nil:
		to("next", s.Next)
	case s.join != nil: // the Choice after the Parallel state compares the result of its first branch
		ways := m.edges(s.join.Next)
		i := slices.IndexFunc(ways, func(e edge) bool {
			return e.on == "$.ran[0].outcome "+s.Result.Outcome || e.on == "default"
		})
		if i >= 0 {
			to("next", ways[i].to)
		}
	}
	return out
}

// reach is what can be reached from a state, itself included, on edges that cut does not cut.
func (m *machine) reach(from string, cut func(edge) bool) []string {
	var seen []string
	for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
		if m.states[todo[0]] == nil || slices.Contains(seen, todo[0]) {
			continue
		}
		seen = append(seen, todo[0])
		for _, e := range m.edges(todo[0]) {
			if cut == nil || !cut(e) {
				todo = append(todo, e.to)
			}
		}
	}
	return seen
}

// inspect returns what is wrong with a machine: its form, its requests, and its paths.
func (m *machine) inspect() []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	reached := m.reach(m.start, nil)
	for _, name := range names(m.states) {
		s := m.states[name]
		m.inspectForm(name, bad)
		if s.Type == "Task" && !s.works() {
			m.inspectRequest(name, bad)
		}
		// The Choice after a Parallel state is where the edges of its first branch lead.
		after := slices.ContainsFunc(names(m.states), func(n string) bool {
			return m.states[n].Branches != nil && m.states[n].Next == name
		})
		if !after && !slices.Contains(reached, name) {
			bad("nothing leads to %s", name)
		}
		if !slices.ContainsFunc(m.reach(name, nil), func(n string) bool { return m.states[n].ends() }) {
			bad("nothing leads from %s to an end", name)
		}
	}
	m.inspectClaims(bad)
	m.inspectWork(bad)
	m.inspectLock(bad)
	return out
}

var pathAsText = regexp.MustCompile(`"[^"]*[^$"]": *"\$`)

func (m *machine) inspectForm(name string, bad func(string, ...any)) {
	s := m.states[name]
	may, known := fields[s.Type]
	if !known {
		bad("%s: type %q is not known", name, s.Type)
	}
	for _, field := range s.has {
		if field != "Type" && field != "Comment" && !slices.Contains(may, field) {
			bad("%s: a %s has no %s", name, s.Type, field)
		}
	}
	for _, e := range m.edges(name) {
		if m.states[e.to] == nil {
			bad("%s leads to %q, which is no state", name, e.to)
		}
	}
	switch s.Type {
	case "Choice":
		if s.Default == "" {
			bad("%s has no Default: what matches no rule would fail", name)
		}
	case "Succeed", "Fail":
	default:
		if (s.Next != "") == s.End {
			bad("%s needs either Next or End", name)
		}
	}
	if s.Type == "Wait" && (s.Seconds > 0) == (s.SecondsPath != "") {
		bad("%s needs either Seconds or SecondsPath", name)
	}
	if found := pathAsText.Find(s.Parameters); found != nil {
		bad("%s: %s is a path, and the name does not end in .$", name, found)
	}
}

// inspectRequest: a request without a response is repeated, unchanged, and its response does not replace the input.
func (m *machine) inspectRequest(name string, bad func(string, ...any)) {
	s := m.states[name]
	var errs []string
	for _, r := range s.Retry {
		errs = append(errs, r.ErrorEquals...)
	}
	for _, e := range repeated {
		if !slices.Contains(errs, e) {
			bad("%s does not repeat its request after %s", name, e)
		}
	}
	if strings.Contains(string(s.Parameters), "States.") {
		bad("%s computes a part of its request: a repeated one would be another", name)
	}
	if !strings.HasPrefix(s.ResultPath, "$.") {
		bad("%s drops its input", name)
	}
}

// claimed reports whether an edge is taken by who owns the key (claim) or the lock.
func claimed(what string, e edge) bool { return e.on == "$."+what+".ResponseBody.isDuplicate false" }

func (m *machine) claims(e edge) bool { return m.states[e.to] != nil && m.states[e.to].calls("claim") }

// inspectClaims: work only after a claim; a duplicate waits, or skips what is completed; every attempt has a nonce of
// its own.
func (m *machine) inspectClaims(bad func(string, ...any)) {
	for _, name := range m.reach(m.start, func(e edge) bool { return claimed("claim", e) }) {
		if m.states[name].works() {
			bad("%s runs without a claim", name)
		}
	}
	for _, name := range names(m.states) {
		if strings.Contains(fmt.Sprint(m.edges(name)), ".isDuplicate false") {
			m.inspectDuplicates(name, bad)
		}
		if !m.states[name].calls("release") {
			continue
		}
		sameNonce := func(e edge) bool {
			return m.states[e.to] != nil && strings.Contains(string(m.states[e.to].Parameters), "States.UUID()")
		}
		for _, n := range m.reach(name, sameNonce) {
			if m.states[n].calls("claim") {
				bad("%s leads to %s with the same nonce", name, n)
			}
		}
	}
}

func (m *machine) inspectDuplicates(choice string, bad func(string, ...any)) {
	for _, e := range m.edges(choice) {
		if strings.HasSuffix(e.on, ".isDuplicate false") {
			continue
		}
		waits, again := false, false
		for _, n := range m.reach(e.to, m.claims) {
			s := m.states[n]
			if s.Type == "Succeed" && e.on != "$.claim.ResponseBody.verdict replay" {
				bad("%s: a duplicate that is not completed leads to %s", choice, n)
			}
			waits = waits || strings.HasSuffix(s.SecondsPath, ".retry_after_seconds")
			again = again || slices.ContainsFunc(m.edges(n), m.claims)
		}
		busy := strings.HasSuffix(e.on, ".verdict busy")
		if busy && !again {
			bad("%s: busy does not lead back to a claim", choice)
		}
		if busy && !waits {
			bad("%s: busy does not lead to a wait of retry_after_seconds", choice)
		}
	}
}

// inspectWork: what succeeds was completed; what failed is released; what may still be running is not; the lease
// outlives the work.
func (m *machine) inspectWork(bad func(string, ...any)) {
	const timeout = "catch States.Timeout"
	for _, name := range names(m.states) {
		s := m.states[name]
		if !s.works() {
			continue
		}
		for _, n := range m.reach(name, func(e edge) bool {
			return m.claims(e) || m.states[e.from].calls("complete") && e.on == "next"
		}) {
			if m.states[n].Type == "Succeed" {
				bad("work leads to %s without a completion", n)
			}
		}
		for i, e := range m.edges(name) {
			if (e.on == timeout) != (i == 0) {
				bad("%s does not catch States.Timeout before any other error", name)
			}
			for _, n := range m.reach(e.to, func(e edge) bool {
				return m.claims(e) || m.states[e.from].releases("claim")
			}) {
				if e.on == timeout && m.states[n].releases("claim") {
					bad("after a timeout, %s releases the key", n)
				}
				if e.on == "catch States.ALL" && m.states[n].ends() {
					bad("a failure of %s leads to an end without a release", name)
				}
			}
		}
		m.inspectLease(name, bad)
	}
}

// inspectLease: work ends before its leases, or a branch beside it extends them twice as often as needed.
func (m *machine) inspectLease(work string, bad func(string, ...any)) {
	for _, name := range names(m.states) {
		s := m.states[name]
		var p struct {
			RequestBody struct {
				Lease int `json:"lease_ms"`
			}
		}
		if s.Parameters == nil || json.Unmarshal(s.Parameters, &p) != nil || p.RequestBody.Lease == 0 {
			continue
		}
		if took := m.states[work].TimeoutSeconds; m.states["Extend"] == nil && took*1000 >= p.RequestBody.Lease {
			bad("%s may take %d s, longer than the lease of %s", work, took, name)
		}
		if beat := m.states["Beat"]; beat != nil && beat.Seconds*2000 > p.RequestBody.Lease {
			bad("Beat waits for %d s, more than half the lease of %s", beat.Seconds, name)
		}
	}
}

// inspectLock: who got the lock releases it before the execution ends or waits; only work that may still be running
// keeps it.
func (m *machine) inspectLock(bad func(string, ...any)) {
	for _, name := range names(m.states) {
		for _, e := range m.edges(name) {
			if !claimed("lock", e) {
				continue
			}
			for _, n := range m.reach(e.to, func(e edge) bool {
				return m.states[e.from].releases("lock") || e.on == "catch States.Timeout"
			}) {
				if s := m.states[n]; s.ends() || s.Type == "Wait" {
					bad("the lock is still held in %s", n)
				}
			}
		}
	}
}
