// Package prom exports a consumer's activity as Prometheus metrics.
//
//	m, err := prom.New(prometheus.DefaultRegisterer, prom.Options{Queue: queue, Store: store})
//	cfg.Events = semel.Tee(cfg.Events, m.Events())
//	consumer, err := semel.New(cfg)
//	m.Watch(consumer)
//
// Counters and histograms follow the consumer's events. Gauges of the queue (depth, dead letters, age) and of the store
// (uncertain keys) are read when they are scraped, at most once in Options.Every. They are left out while the queue or
// the store does not respond. Everything has the labels queue and consumer.
//
// # What to alert on
//
// A suppressed duplicate is no trouble: suppressing duplicates is semel's purpose. Effects that happen twice are, and
// messages that are never completed. So alert on semel_duplicate_effects_total (which an audit counts, see
// [Duplicates]), semel_deliveries_total with the decision parked_uncertain, semel_lease_lost_total and semel_dlq_depth.
// Never alert on semel_duplicates_total. The rules that semel alerts prints do so.
package prom
