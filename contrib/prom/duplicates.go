package prom

import "github.com/prometheus/client_golang/prometheus"

// Duplicates registers semel_duplicate_effects_total of one consumer: effects beyond the first of their key, as somebody
// counted them who does not rely on the records (semel audit, a scenario of the lab). Anything but 0 is worth waking up for.
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
