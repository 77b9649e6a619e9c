// Package fakesqs is Amazon SQS in the process of a test: standard and FIFO queues over the JSON protocol that the SDKs of AWS
// and the aws command speak, on a clock that can be moved.
//
//	fake := fakesqs.New(fakesqs.Options{Clock: awstest.Frozen(start)})
//	client := sqs.NewFromConfig(awstest.Config(fake))
//
// It is as weak as the service: an old receipt handle of a standard queue still works, an extension that comes too late is
// answered with success, messages come twice when a test says so (Duplicate, Return), and short polls miss messages
// (HideFromShortPolls). What it answers is pinned by a table of documented and of recorded answers in this package's tests.
//
// A standard queue gives messages in the order they came in until one was received three times, unless Options.Disorder asks
// for the service's disorder.
//
// What it does not have: access control, encryption, throttling and the older query protocol. Everything is in memory, unless Open
// gets a Keeper: then a server that starts again has what the one before had.
package fakesqs
