// Package tests holds the tests that need more than the standard library: comparisons with oracles, real processes and
// real servers. It is its own module, outside the workspace, so that libraries for tests never influence the versions that
// programs get.
package tests
