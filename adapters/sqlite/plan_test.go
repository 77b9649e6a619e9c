package sqlite

import (
	"strings"
	"testing"
)

// TestHotStatementsUseIndexes asks SQLite for the plan of every statement of the hot paths: none may scan a table.
func TestHotStatementsUseIndexes(t *testing.T) {
	db := open(t)
	small := []string{"semel_state"} // one row
	for name, sql := range map[string]string{
		"record by hash": sqlRecordByHash, "record by token": sqlRecordByToken, "complete": sqlComplete, "extend": sqlExtend,
		"record update": sqlRecordUpdate, "record delete": sqlRecordDelete, "due": sqlDue,
		"sweep known": sqlSweepKnown, "sweep next": sqlSweepNext, "sweep block": sqlSweepBlock, "purge": sqlSweepPurge, "expire": sqlSweepExpire,
		"steps of": sqlBelongings[0], "audit of": sqlBelongings[1], "duplicates of": sqlBelongings[2],
		"group has": sqlGroupHas, "flights over": sqlFlightsOver, "flight delete": sqlFlightDelete, "to timed": sqlToTimed,
		"stream delete": sqlStreamDelete, "take timed": sqlTakeTimed, "take stream": sqlTakeStream, "hand timed": sqlHandTimed,
		"body": sqlBody, "flight": sqlFlight, "flight rest": sqlFlightRest, "flight until": sqlFlightUntil, "records by hash": sqlRecordsByHash, "flight part": sqlFlightPart,
		"run has": sqlRunHas, "body delete": sqlBodyDelete, "timed": sqlTimed, "timed delete": sqlTimedDelete,
		"timed back": sqlTimedBack, "timed extend": sqlTimedExtend, "group next": sqlGroupNext,
		"next stream": sqlNextStream, "next timed": sqlNextTimed, "next flight": sqlNextFlight,
		"step": sqlStep, "steps overtaken": sqlStepsOvertaken,
		"letter": sqlLetter, "letter delete": sqlLetterDelete,
		"purge stream": sqlPurgeStream, "purge timed": sqlPurgeTimed, "purge flights": sqlPurgeFlights,
	} {
		rows, err := db.SQL().QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+sql, make([]any, strings.Count(sql, "?"))...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(detail, "SCAN") && !strings.Contains(detail, small[0]) || strings.Contains(detail, "TEMP B-TREE") {
				t.Errorf("%s: %s", name, detail)
			}
		}
		if err := rows.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		rows.Close()
	}
}

// TestUncertainRecordsHaveAnIndex: metrics list the UNCERTAIN records at every scrape, among any number of others.
func TestUncertainRecordsHaveAnIndex(t *testing.T) {
	db := open(t)
	for _, query := range []string{sqlUncertain, sqlNewestUncertain} {
		rows, err := db.SQL().QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, "orders", 5, 100)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			if detail != "SCAN semel_record USING INDEX semel_record_uncertain" && detail != "USE TEMP B-TREE FOR ORDER BY" {
				t.Errorf("%s: %s", query, detail)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		rows.Close()
	}
}
