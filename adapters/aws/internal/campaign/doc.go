// Package campaign runs whole consumers on the fakes of SQS and DynamoDB in virtual time: processes that are killed, cut off
// and replaced, wires that lose, delay and reorder what they carry, clocks that differ, messages that come twice. Its verdict
// is read from the queues and tables themselves. It has tests only.
package campaign
