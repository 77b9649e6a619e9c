// Package sqslocal is Amazon SQS on this machine for people and their programs: the fake of adapters/aws/awstest/fakesqs
// behind a socket, kept in an SQLite file when that is wanted, with faults that can be switched while it runs.
//
// The way of a request (server.go): one of the old query protocol becomes one of JSON (query.go), what breaks on the wire is struck first (wire.go, with awstest.Faults), then what goes wrong
// with single messages and handles (strike.go), then the fake carries it out. faults.go decides which request is hit.
package sqslocal
