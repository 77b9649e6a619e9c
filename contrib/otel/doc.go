// Package semelotel traces and measures a consumer with OpenTelemetry.
//
//	t, err := semelotel.Instrument(&cfg, semelotel.Options{}) // before semel.New
//	consumer, err := semel.New(cfg)
//	t.Watch(consumer) // its load, as metrics
//
// A producer sends through [Queue], which adds the trace context to the messages' headers:
//
//	err := semelotel.Queue(queue, semelotel.Options{}).(driver.Sender).Send(ctx, message)
//
// # Spans
//
//	send Q     one call of Send; a batch also has one create Q for each message
//	receive Q  one Receive that returned messages, with links to the spans that sent them
//	process Q  one run of the handler
//	skip Q     a delivery that was settled without a run; it links to the run that took effect
//	settle Q   from the end of the run (or the decision to skip) until the record is written and the delivery is settled
//	probe Q    one call of Config.Probe
//
// Names, kinds and attributes are those of OpenTelemetry's conventions for messaging, as of version 1.44 (status:
// development). Attributes that begin with semel. are semel's own: docs/monitoring.md lists them.
//
// The span that sent a message is the parent of its process and skip spans, as long as the message is younger than fifteen
// minutes and was not redriven from a dead letter. Otherwise they begin a trace of their own, and link to it: a trace that
// lasts for days is of no use to anybody, and samplers do not wait for it.
//
// A skipped duplicate is no error. Its span has no error status, and links to the process span of the run that took effect, if
// that run was sampled: its record keeps the span.
//
// # Propagation
//
// The process span is in the context of the handler, in Attempt.Headers, from which semel work passes it to --exec
// (TRACEPARENT) and --http, and in the headers of emitted messages.
//
// # Metrics
//
// Instruments have the names that become those of package prom in Prometheus (semel.deliveries becomes
// semel_deliveries_total), so alert rules and the dashboard fit both.
package semelotel
