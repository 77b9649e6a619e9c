// Package asltest checks and runs state machines in the Amazon States Language, for tests of those in deploy/aws. It knows
// what these use: JSONPath without filters, the states Pass, Task, Choice, Wait, Parallel, Succeed and Fail, retriers and
// catchers, and four intrinsic functions. Anything else is an error, so that nothing is passed over.
//
// https://states-language.net/spec.html
package asltest
