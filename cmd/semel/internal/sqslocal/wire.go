package sqslocal

import (
	"net/http"
	"strings"

	"github.com/semel-dev/semel/adapters/aws/awstest"
)

// operation is what a request asks for.
func operation(r *http.Request) string {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	return op
}

// onWire are the faults of a connection, of which at most one hits a request, and what awstest calls them.
var onWire = []struct {
	name string
	kind awstest.Kind
	// either: it is carried out or not.
	either bool
}{
	{name: Cut, kind: awstest.Before},
	{name: Throttle, kind: awstest.Throttled},
	{name: Unavailable, kind: awstest.Unavailable},
	{name: Internal, kind: awstest.Internal, either: true},
	{name: LostResponse, kind: awstest.After},
	{name: Torn, kind: awstest.Torn},
	{name: Partial, kind: awstest.Partial, either: true},
}

// wire is what goes wrong with the connection of one request: a plan with nothing but it.
func (s *Server) wire(op string) awstest.Plan {
	var p awstest.Plan
	if h := s.faults.draw(Delay, op); h != nil {
		p.Schedule = append(p.Schedule, awstest.Fault{
			Operation: op, Call: 1, Kind: awstest.Delay, By: h.by, Done: h.random.IntN(2) == 0,
		})
	}
	for _, f := range onWire {
		if h := s.faults.draw(f.name, op); h != nil {
			p.Seed = h.random.Uint64()
			p.Schedule = append(p.Schedule, awstest.Fault{
				Operation: op, Call: 1, Kind: f.kind, Done: f.either && h.random.IntN(2) == 0,
			})
			break
		}
	}
	return p
}
