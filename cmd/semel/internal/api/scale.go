package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/semel-dev/semel/driver"
)

// scale is the response of GET /v1/scale: the figures that an autoscaler needs.
type scale struct {
	Queue string `json:"queue"`
	// Backlog is what there is to do: visible and in flight. Delayed messages have their time, and are not work yet.
	Backlog   int64   `json:"backlog"`
	Visible   int64   `json:"visible"`
	InFlight  int64   `json:"in_flight"`
	Delayed   int64   `json:"delayed"`
	OldestAge float64 `json:"oldest_age_seconds"`
	// Approximate: the broker's numbers lag behind.
	Approximate bool `json:"approximate,omitempty"`
	// PerWorker is Backlog by the workers of the question; Desired how many workers have per_worker each.
	PerWorker *float64 `json:"backlog_per_worker,omitempty"`
	Desired   *int64   `json:"desired_workers,omitempty"`
}

// maxWorkers bounds what may be asked of /v1/scale.
const maxWorkers = 1_000_000

// scale tells the backlog. With ?workers=N it is divided by N, with ?per_worker=M it says for how many workers it is work.
func (s *Server) scale(w http.ResponseWriter, r *http.Request) {
	inspect, ok := driver.As[driver.QueueInspector](s.Queue)
	if !ok {
		fail(w, http.StatusNotImplemented, "unsupported", "queue "+s.Queue.Features().Name+" cannot count its messages")
		return
	}
	workers, err := positive(r, "workers")
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	each, err := positive(r, "per_worker")
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), opTimeout)
	defer cancel()
	st, err := inspect.Stats(ctx)
	if err != nil {
		s.unavailable(w, "scale", err)
		return
	}
	a := scale{
		Queue: s.Queue.Features().Name, Backlog: st.Visible + st.InFlight, Visible: st.Visible, InFlight: st.InFlight,
		Delayed: st.Delayed, OldestAge: st.Oldest.Seconds(), Approximate: st.Approximate,
	}
	if workers > 0 {
		a.PerWorker = new(float64(a.Backlog) / float64(workers))
	}
	if each > 0 {
		a.Desired = new(int64(math.Ceil(float64(a.Backlog) / float64(each))))
	}
	reply(w, http.StatusOK, a)
}

// positive reads a whole number of the query; 0 when it is not there.
func positive(r *http.Request, name string) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > maxWorkers {
		return 0, fmt.Errorf("%s=%.40q: write a whole number from 1 to %d", name, text, maxWorkers)
	}
	return n, nil
}
