// Package fakesqs is Amazon SQS in the process of a test: standard and FIFO queues over the JSON protocol that the SDKs of
// AWS and the aws command speak, on a clock that can be moved.
//
//	fake := fakesqs.New(fakesqs.Options{Clock: awstest.Frozen(start)})
//	client := sqs.NewFromConfig(awstest.Config(fake))
//
// It is as weak as the service: an old receipt handle of a standard queue still works, a late extension is reported as a
// success, tests can deliver messages twice (Duplicate, Return), and short polls miss messages (HideFromShortPolls). A table
// of documented and recorded responses in this package's tests defines its behaviour.
//
// A standard queue delivers messages in the order of their arrival until one was received three times, unless
// Options.Disorder asks for the service's disorder.
//
// It lacks access control, encryption, throttling and the older query protocol. Everything is in memory, unless Open gets a
// Keeper: then a restarted server has the state of the one before.
package fakesqs
