// Package prom shows what a consumer does as Prometheus metrics.
//
//	m, err := prom.New(prometheus.DefaultRegisterer, prom.Options{Queue: queue, Store: store})
//	cfg.Events = semel.Tee(cfg.Events, m.Events())
//	consumer, err := semel.New(cfg)
//	m.Watch(consumer)
//
// Counters and histograms are made of the consumer's events. Gauges of the queue (depth, dead letters, age) and of the store
// (uncertain keys) are asked when they are scraped, at most once in Options.Every, and are left out while it does not answer. Everything has the labels
// queue and consumer.
//
// # What to alert on
//
// A duplicate that was suppressed is no trouble: it is what semel is for. What must not happen are effects that happened
// twice, and messages that nobody gets done. So alert on semel_duplicate_effects_total (which an audit counts, see
// [Duplicates]), semel_deliveries_total with the decision parked_uncertain, semel_lease_lost_total and the depth of the dead
// dead letters, and never on semel_duplicates_total. The rules that semel alerts prints say it so.
package prom
