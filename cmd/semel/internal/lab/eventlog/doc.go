// Package eventlog records the events of a run's processes: JSON lines, one file per process. The report is drawn from
// them; the verdict never depends on them.
package eventlog
