// Package tests holds what needs more than the core's standard library: comparisons with oracles, real processes and
// real servers. It is a module of its own, outside of the workspace, so that a library that only a test needs never
// takes part in choosing the versions that programs get.
package tests
