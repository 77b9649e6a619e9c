// Package crew runs consumers on PostgreSQL as real processes, to be killed, frozen and thawed, and judges them by a
// ledger: a table without any constraint, where every effect leaves a row. What a worker believes to have done does not
// count; the rows do. Tests of single faults and the campaign of many share it.
package crew
