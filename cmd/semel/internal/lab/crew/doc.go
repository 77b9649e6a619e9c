// Package crew plays one run: it sends the load, keeps the worker processes alive, strikes them from outside, waits until
// everything is settled, and brings back what the run left behind. It judges nothing.
package crew
