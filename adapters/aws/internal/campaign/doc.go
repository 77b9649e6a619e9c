// Package campaign runs whole consumers on the fakes of SQS and DynamoDB in virtual time: processes are killed, cut off and
// replaced, connections lose, delay and reorder requests, clocks differ, messages are delivered twice. The verdict is based
// on the final state of the queues and tables. The package has tests only.
package campaign
