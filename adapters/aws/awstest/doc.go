// Package awstest is what tests of programs on Amazon Web Services need when the service is not there: clocks, connections
// that stay inside of the process, and faults on the wire. The services themselves are fakes in the packages fakesqs and
// fakedynamodb.
package awstest
