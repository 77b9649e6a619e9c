package prom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Duplicates registers semel_duplicate_effects_total of one consumer: effects beyond the first of their key, counted
// without the records (by semel audit, or by a scenario of the lab). Page a person for anything but 0.
func Duplicates(reg prometheus.Registerer, queue, consumer string) (prometheus.Counter, error) {
	c := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "semel_duplicate_effects_total", Help: "Effects beyond the first of their key, counted by an audit of the effects.",
		ConstLabels: prometheus.Labels{"queue": queue, "consumer": consumer},
	})
	if err := reg.Register(c); err != nil {
		return nil, err
	}
	return c, nil
}

// Audited registers semel_audit_timestamp_seconds of one consumer: when the last audit of its effects ended. Without it, a
// missing audit looks like one that found nothing.
func Audited(reg prometheus.Registerer, queue, consumer string, at time.Time) error {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "semel_audit_timestamp_seconds", Help: "When the last audit of the effects ended, in seconds since 1970.",
		ConstLabels: prometheus.Labels{"queue": queue, "consumer": consumer},
	})
	g.Set(float64(at.Unix()))
	return reg.Register(g)
}
