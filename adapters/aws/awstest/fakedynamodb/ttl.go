package fakedynamodb

import (
	"math"
	"strconv"
	"time"
)

// tooOld is how long ago an item must have expired to be left alone: the service then assumes a mistake.
//
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/time-to-live-ttl-before-you-start.html
const tooOld = 5 * 365 * 24 * time.Hour

// ttlInterval is how far changes of the time to live have to be apart.
//
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_UpdateTimeToLive.html
const ttlInterval = time.Hour

type ttlInput struct {
	TableName               string
	TimeToLiveSpecification struct {
		AttributeName string
		Enabled       bool
	}
}

func (r *request) updateTimeToLive(in ttlInput) (any, error) {
	t, err := r.table(in.TableName)
	if err != nil {
		return nil, err
	}
	spec := in.TimeToLiveSpecification
	switch {
	case spec.AttributeName == "":
		return nil, missing("timeToLiveSpecification.attributeName")
	case spec.Enabled && t.ttl != "":
		return nil, invalid("TimeToLive is already enabled")
	case !spec.Enabled && t.ttl == "":
		return nil, invalid("TimeToLive is already disabled")
	case !spec.Enabled && t.ttl != spec.AttributeName:
		return nil, invalid("TimeToLive is active on a different AttributeName: current AttributeName is %s", t.ttl)
	}
	if !t.ttlChanged.IsZero() && r.now.Sub(t.ttlChanged) < ttlInterval {
		return nil, invalid("Time to live has been modified multiple times within a fixed interval")
	}
	t.ttlChanged = r.now
	if t.ttl = ""; spec.Enabled {
		t.ttl = spec.AttributeName
	}
	t.ttlDue = math.MinInt64 // look at all items next time
	return map[string]any{"TimeToLiveSpecification": map[string]any{"AttributeName": spec.AttributeName,
		"Enabled": spec.Enabled}}, nil
}

func (r *request) describeTimeToLive(in tableInput) (any, error) {
	t, err := r.table(in.TableName)
	if err != nil {
		return nil, err
	}
	d := map[string]any{"TimeToLiveStatus": "DISABLED"}
	if t.ttl != "" {
		d = map[string]any{"TimeToLiveStatus": "ENABLED", "AttributeName": t.ttl}
	}
	return map[string]any{"TimeToLiveDescription": d}, nil
}

// expiry is the second in which an item expires: only numbers count.
func (t *table) expiry(it item) (int64, bool) {
	v := it[t.ttl]
	if t.ttl == "" || v.kind != "N" {
		return 0, false
	}
	f, err := strconv.ParseFloat(v.text, 64)
	if err != nil || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// sweep deletes what expired longer than lag ago; a lag below 0 keeps everything.
func (s *Server) sweep(now time.Time, lag time.Duration) (deleted int) {
	if lag < 0 {
		return 0
	}
	limit, oldest := now.Add(-lag).Unix(), now.Add(-tooOld).Unix()
	for _, t := range s.tables {
		if t.ttl == "" || t.ttlDue > limit {
			continue
		}
		t.ttlDue = math.MaxInt64
		for _, row := range t.rows {
			due, ok := t.expiry(row.now)
			switch {
			case !ok || due < oldest:
			case due <= limit:
				row.before, row.now, row.written = row.now, nil, now
				deleted++
			default:
				t.ttlDue = min(t.ttlDue, due)
			}
		}
	}
	return deleted
}

// DeleteExpired deletes all items that have expired by now, without the lag, and returns their number.
func (s *Server) DeleteExpired() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sweep(s.o.Clock.Now(), 0)
}
