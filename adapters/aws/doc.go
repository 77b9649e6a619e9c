// Package aws is the module of the adapters for Amazon Web Services: package sqs is the queue, package dynamodb the
// record store, package awstest fakes of both services for tests. There is nothing in it but these folders.
package aws
