// Package crew runs one scenario once: it sends the load, keeps the worker processes alive, kills and freezes them from
// outside, waits until everything is settled, and collects what the run left behind. It judges nothing.
package crew
