// Package awstest is for tests of programs on Amazon Web Services without the services: clocks, connections that stay inside
// of the process, and faults on the wire. The services themselves are fakes in the packages fakesqs, fakedynamodb and
// fakesfn.
package awstest
