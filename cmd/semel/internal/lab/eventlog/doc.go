// Package eventlog is what the processes of a run write of themselves: JSON lines, one file a process. The picture is drawn
// from it; the verdict never depends on it.
package eventlog
