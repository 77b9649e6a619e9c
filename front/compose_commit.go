package front

import "github.com/semel-dev/semel/driver"

// This file is compose.go for stores that commit.

func (a admin) committer(b *committer) driver.Store {
	switch a.set() {
	case 1:
		return struct {
			*committer
			inspector
		}{b, a.i}
	case 2:
		return struct {
			*committer
			inspector
			scanner
		}{b, a.i, a.s}
	case 3:
		return struct {
			*committer
			*operator
		}{b, a.o}
	case 4:
		return struct {
			*committer
			inspector
			*operator
		}{b, a.i, a.o}
	case 5:
		return struct {
			*committer
			inspector
			scanner
			*operator
		}{b, a.i, a.s, a.o}
	case 6:
		return struct {
			*committer
			*operator
			auditLog
		}{b, a.o, a.a}
	case 7:
		return struct {
			*committer
			inspector
			*operator
			auditLog
		}{b, a.i, a.o, a.a}
	case 8:
		return struct {
			*committer
			inspector
			scanner
			*operator
			auditLog
		}{b, a.i, a.s, a.o, a.a}
	}
	return b
}

func (a admin) stepCommitter(b *committer, j journal) driver.Store {
	switch a.set() {
	case 1:
		return struct {
			*committer
			journal
			inspector
		}{b, j, a.i}
	case 2:
		return struct {
			*committer
			journal
			inspector
			scanner
		}{b, j, a.i, a.s}
	case 3:
		return struct {
			*committer
			journal
			*operator
		}{b, j, a.o}
	case 4:
		return struct {
			*committer
			journal
			inspector
			*operator
		}{b, j, a.i, a.o}
	case 5:
		return struct {
			*committer
			journal
			inspector
			scanner
			*operator
		}{b, j, a.i, a.s, a.o}
	case 6:
		return struct {
			*committer
			journal
			*operator
			auditLog
		}{b, j, a.o, a.a}
	case 7:
		return struct {
			*committer
			journal
			inspector
			*operator
			auditLog
		}{b, j, a.i, a.o, a.a}
	case 8:
		return struct {
			*committer
			journal
			inspector
			scanner
			*operator
			auditLog
		}{b, j, a.i, a.s, a.o, a.a}
	}
	return struct {
		*committer
		journal
	}{b, j}
}

func (a admin) transactor(b *transactor) driver.Store {
	switch a.set() {
	case 1:
		return struct {
			*transactor
			inspector
		}{b, a.i}
	case 2:
		return struct {
			*transactor
			inspector
			scanner
		}{b, a.i, a.s}
	case 3:
		return struct {
			*transactor
			*operator
		}{b, a.o}
	case 4:
		return struct {
			*transactor
			inspector
			*operator
		}{b, a.i, a.o}
	case 5:
		return struct {
			*transactor
			inspector
			scanner
			*operator
		}{b, a.i, a.s, a.o}
	case 6:
		return struct {
			*transactor
			*operator
			auditLog
		}{b, a.o, a.a}
	case 7:
		return struct {
			*transactor
			inspector
			*operator
			auditLog
		}{b, a.i, a.o, a.a}
	case 8:
		return struct {
			*transactor
			inspector
			scanner
			*operator
			auditLog
		}{b, a.i, a.s, a.o, a.a}
	}
	return b
}

func (a admin) stepTransactor(b *transactor, j journal) driver.Store {
	switch a.set() {
	case 1:
		return struct {
			*transactor
			journal
			inspector
		}{b, j, a.i}
	case 2:
		return struct {
			*transactor
			journal
			inspector
			scanner
		}{b, j, a.i, a.s}
	case 3:
		return struct {
			*transactor
			journal
			*operator
		}{b, j, a.o}
	case 4:
		return struct {
			*transactor
			journal
			inspector
			*operator
		}{b, j, a.i, a.o}
	case 5:
		return struct {
			*transactor
			journal
			inspector
			scanner
			*operator
		}{b, j, a.i, a.s, a.o}
	case 6:
		return struct {
			*transactor
			journal
			*operator
			auditLog
		}{b, j, a.o, a.a}
	case 7:
		return struct {
			*transactor
			journal
			inspector
			*operator
			auditLog
		}{b, j, a.i, a.o, a.a}
	case 8:
		return struct {
			*transactor
			journal
			inspector
			scanner
			*operator
			auditLog
		}{b, j, a.i, a.s, a.o, a.a}
	}
	return struct {
		*transactor
		journal
	}{b, j}
}
