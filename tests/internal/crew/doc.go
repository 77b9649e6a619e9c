// Package crew runs consumers on PostgreSQL as real processes, to be killed, frozen and thawed, and judges them by a
// ledger: a table without any constraint, where every effect leaves a row. Only the rows count, not the reports of the
// workers. Tests of single faults and the campaign of many share it.
package crew
