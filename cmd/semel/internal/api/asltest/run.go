package asltest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// World is what an execution acts on.
type World struct {
	// API serves the requests of HTTP tasks. An error is a connection that broke.
	API func(*http.Request) (status int, body []byte, err error)
	// Work is the function, or the job, of the other tasks: its payload, and its result. An *StateError has a name of its own. It goes
	// on when its state times out or its execution is stopped.
	Work func(payload map[string]any) (any, error)
	// Name is the execution's. Visit is called with each state that begins; nil = nobody.
	Name  string
	Visit func(state string)
	// Faster divides all waiting between and inside of states, against a server whose clock nobody moves. 0 = 1.
	Faster time.Duration
}

// Run runs a machine until it ends or ctx is done: an execution that somebody stops. It returns the last state's name and its
// output; a Fail state is an *StateError.
func (m *Machine) Run(ctx context.Context, w World, input []byte) (end string, output any, err error) {
	v, err := decode(input)
	if err != nil {
		return "", nil, err
	}
	object := map[string]any{"Execution": map[string]any{"Name": w.Name, "Id": "arn:aws:states:us-east-1:000000000000:execution:m:" + w.Name}}
	return (&run{World: w, object: object}).machine(ctx, m, v)
}

func decode(b []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	return v, dec.Decode(&v)
}

type run struct {
	World
	object any // the context object
	begun  atomic.Int64
}

// maxStates bounds the states that an execution begins: the service ends one after 25,000 events of its history, of which a
// state makes up to five.
//
// https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
const maxStates = 5000

func (r *run) machine(ctx context.Context, m *Machine, v any) (end string, out any, err error) {
	for name := m.StartAt; ; {
		if r.begun.Add(1) > maxStates {
			return name, nil, fmt.Errorf("more than %d states were begun", maxStates)
		}
		if r.Visit != nil {
			r.Visit(name)
		}
		s := m.States[name]
		out, next, err := r.state(ctx, s, v)
		if ctx.Err() != nil {
			return name, nil, context.Cause(ctx)
		}
		if err != nil {
			if out, next, err = s.caught(v, err); err != nil {
				return name, nil, err
			}
		}
		if next == "" {
			return name, out, nil
		}
		name, v = next, out
	}
}

// state carries out one state with its retriers.
func (r *run) state(ctx context.Context, s *State, v any) (out any, next string, err error) {
	tries := make([]int, len(s.Retry))
	for {
		out, next, err = r.once(ctx, s, v)
		e := (*StateError)(nil)
		if err == nil || !errors.As(err, &e) || s.Type == "Fail" {
			return out, next, err
		}
		i := slices.IndexFunc(s.Retry, func(t Retrier) bool { return matches(t.ErrorEquals, e.Name) })
		if i < 0 || tries[i] >= s.Retry[i].MaxAttempts {
			return nil, "", err
		}
		seconds := s.Retry[i].IntervalSeconds
		for range tries[i] {
			seconds *= s.Retry[i].BackoffRate
		}
		if most := s.Retry[i].MaxDelaySeconds; most > 0 {
			seconds = min(seconds, most)
		}
		tries[i]++
		r.sleep(ctx, time.Duration(seconds*float64(time.Second)))
		if ctx.Err() != nil {
			return nil, "", context.Cause(ctx)
		}
	}
}

func matches(names []string, name string) bool {
	return slices.Contains(names, all) || slices.Contains(names, name)
}

// caught is where an error of a state leads.
func (s *State) caught(v any, err error) (out any, next string, _ error) {
	e := (*StateError)(nil)
	if !errors.As(err, &e) || s.Type == "Fail" {
		return nil, "", err
	}
	for _, c := range s.Catch {
		if matches(c.ErrorEquals, e.Name) {
			out, err := put(c.ResultPath, v, map[string]any{"Error": e.Name, "Cause": e.Cause})
			return out, c.Next, err
		}
	}
	return nil, "", err
}

func (r *run) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d / max(r.Faster, 1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// once carries out one state.
func (r *run) once(ctx context.Context, s *State, v any) (out any, next string, err error) {
	var result any
	switch s.Type {
	case "Succeed":
		return v, "", nil
	case "Fail":
		return nil, "", &StateError{s.Error, s.Cause}
	case "Choice":
		next, err := r.choose(s, v)
		return v, next, err
	case "Wait":
		return v, s.Next, r.wait(ctx, s, v)
	case "Parallel":
		result, err = r.parallel(ctx, s, v)
	case "Task":
		result, err = r.task(ctx, s, v)
	case "Pass":
		result, err = r.template(s.Parameters, v, v)
		if s.Result != nil {
			result, err = decode(s.Result)
		}
	}
	if err == nil {
		result, err = r.template(s.ResultSelector, result, result)
	}
	if err != nil {
		return nil, "", err
	}
	to := "$"
	if s.ResultPath != nil {
		if err := json.Unmarshal(s.ResultPath, &to); err != nil {
			return nil, "", err
		}
		if bytes.Equal(s.ResultPath, []byte("null")) {
			return v, s.Next, nil
		}
	}
	out, err = put(to, v, result)
	return out, s.Next, err
}

// template fills a template; without one it is what is given.
func (r *run) template(raw json.RawMessage, v, none any) (any, error) {
	if raw == nil {
		return none, nil
	}
	t, err := decode(raw)
	if err != nil {
		return nil, err
	}
	return fill(t, v, r.object)
}

// put makes a copy of v with a result at a path of one name, or in its place.
func put(to string, v, result any) (any, error) {
	if to == "$" {
		return result, nil
	}
	name := strings.TrimPrefix(to, "$.")
	o, isObject := v.(map[string]any)
	if !isObject || strings.ContainsAny(name, ".[") {
		return nil, fmt.Errorf("put a result at %s: not known here", to)
	}
	o = maps.Clone(o)
	o[name] = result
	return o, nil
}

func (r *run) choose(s *State, v any) (string, error) {
	for _, c := range s.Choices {
		got, err := lookUp(c.Variable, v, r.object)
		if err != nil {
			return "", err
		}
		hit := false
		switch {
		case c.BooleanEquals != nil:
			b, is := got.(bool)
			hit = is && b == *c.BooleanEquals
		case c.StringEquals != nil:
			t, is := got.(string)
			hit = is && t == *c.StringEquals
		case c.NumericLessThan != nil:
			n, is := got.(json.Number)
			f, err := n.Float64()
			hit = is && err == nil && f < *c.NumericLessThan
		}
		if hit {
			return c.Next, nil
		}
	}
	if s.Default == "" {
		return "", &StateError{noChoice, "no rule matches"}
	}
	return s.Default, nil
}

func (r *run) wait(ctx context.Context, s *State, v any) error {
	seconds := int64(s.Seconds)
	if s.SecondsPath != "" {
		got, err := lookUp(s.SecondsPath, v, r.object)
		if err != nil {
			return err
		}
		n, _ := got.(json.Number)
		if seconds, err = n.Int64(); err != nil || seconds < 0 {
			return &StateError{path, fmt.Sprintf("%v at %s is no number of seconds", got, s.SecondsPath)}
		}
	}
	r.sleep(ctx, time.Duration(seconds)*time.Second)
	return nil
}

// parallel runs the branches; one that fails stops the others.
func (r *run) parallel(ctx context.Context, s *State, v any) (any, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out, errs := make([]any, len(s.Branches)), make([]error, len(s.Branches))
	var first sync.Once
	var failure error
	var wg sync.WaitGroup
	for i, b := range s.Branches {
		wg.Go(func() {
			if _, out[i], errs[i] = r.machine(ctx, b, v); errs[i] != nil {
				first.Do(func() { failure = &StateError{branch, errs[i].Error()}; stop() })
			}
		})
	}
	wg.Wait()
	return out, failure
}

// task calls the API or does the work. Work that outlives its state goes on.
func (r *run) task(ctx context.Context, s *State, v any) (any, error) {
	in, err := r.template(s.Parameters, v, v)
	if err != nil {
		return nil, err
	}
	parameters, _ := in.(map[string]any)
	if s.Resource == httpTask {
		return r.call(ctx, parameters)
	}
	payload, _ := parameters["Payload"].(map[string]any)
	if payload == nil {
		payload = parameters
	}
	type ended struct {
		result any
		err    error
	}
	done := make(chan ended, 1)
	go func() {
		result, err := r.Work(payload)
		done <- ended{result, err}
	}()
	var late <-chan time.Time
	if s.TimeoutSeconds > 0 {
		t := time.NewTimer(time.Duration(s.TimeoutSeconds) * time.Second)
		defer t.Stop()
		late = t.C
	}
	select {
	case e := <-done:
		if e.err != nil {
			if named := (*StateError)(nil); errors.As(e.err, &named) {
				return nil, named
			}
			return nil, &StateError{"States.TaskFailed", e.err.Error()}
		}
		return map[string]any{"Payload": e.result, "TaskArn": e.result}, nil
	case <-late:
		return nil, &StateError{timeout, "the task took too long"}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// call is an HTTP task.
func (r *run) call(ctx context.Context, p map[string]any) (any, error) {
	body, err := json.Marshal(p["RequestBody"])
	if err != nil {
		return nil, err
	}
	endpoint, _ := p["ApiEndpoint"].(string)
	method, _ := p["Method"].(string)
	req, err := http.NewRequestWithContext(ctx, method, endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	headers, _ := p["Headers"].(map[string]any)
	for name, v := range headers {
		req.Header.Set(name, fmt.Sprint(v))
	}
	if a, _ := p["Authentication"].(map[string]any); !strings.HasPrefix(fmt.Sprint(a["ConnectionArn"]), "arn:aws:events:") {
		return nil, errors.New("an HTTP task needs the ARN of a connection")
	}
	status, body, err := r.API(req)
	if err != nil {
		return nil, &StateError{socket, err.Error()}
	}
	if status >= 400 {
		return nil, &StateError{fmt.Sprintf("States.Http.StatusCode.%d", status), string(body)}
	}
	v, err := decode(body)
	return map[string]any{"StatusCode": json.Number(fmt.Sprint(status)), "ResponseBody": v}, err
}
