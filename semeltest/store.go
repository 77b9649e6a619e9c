package semeltest

import (
	"slices"
	"testing"
)

// RunStore tests a store against the decision table, and everything that the store declares: batches, concurrency,
// hostile keys, tokens across purges, and its optional interfaces.
func RunStore(t *testing.T, open StoreFactory) {
	runCases(t, storeCases(), open)
}

// CheckStore runs the same suite, one case after the other, and returns the failures instead of failing t: for tests of
// the suite itself, and for commands that report about an adapter. With only it runs the cases whose name begins with
// one of these, for tests that plant a bug.
func CheckStore(t testing.TB, open StoreFactory, only ...string) []string {
	t.Helper()
	return checkCases(t, storeCases(), open, only)
}

func storeCases() []suiteCase[StoreSetup] {
	return append([]suiteCase[StoreSetup]{
		{"cells", testCells},
		{"FM43 cells after the clock stepped back", testFM43Cells},
		{"FM62 version cells", testVersionCells},
		{"FM62 versions in transactions", testFM62TxVersions},
		{"sweep cells", testSweepCells},
		{"FM41 sweep", testFM41Sweep},
		{"FM41 sweep of one consumer", testFM41SweepOfOneConsumer},
		{"FM41 sweeps while records are redriven", testFM41SweepRace},
		{"random histories", testRandom},
		{"batches are positional", testBatches},
		{"a thousand keys in one call", testThousandKeys},
		{"empty calls", testEmptyCalls},
		{"FM13 one of many claimers acquires", testFM13OneAcquires},
		{"FM45 many keys in opposite orders", testFM45OppositeOrders},
		{"I3 tokens increase under contention", testTokensIncrease},
		{"I3 tokens increase over an erasure", testErase},
		{"FM54 keys that look alike", testFM54LookAlikes},
		{"FM55 hostile keys", testFM55HostileKeys},
		{"FM32 writes without a response are repeated", testFM32Repeats},
		{"FM12 tokens survive a purge", testFM12Tokens},
		{"FM12 tokens of transactions survive it too", testFM12TxTokens},
		{"a done context", testDoneContext},
		{"FM58 results up to the limit", testFM58Results},
		{"delivery ids are bounded", testDeliveryIDs},
		{"traces of runs reach later claims", testTraces},
		{"records are listed", testRecords},
		{"uncertain records are listed", testUncertain},
		{"commit is guarded", testCommitGuarded},
		{"commit repeated", testCommitRepeated},
		{"commit brings claims", testCommitClaims},
		{"claims at the commit beside others of their keys", testAtCommitBeside},
		{"commit with claims refused", testCommitClaimsRefused},
		{"FM13 one of many commits makes the record", testFM13OneInserts},
		{"commit refused as a whole", testCommitRefused},
		{"FM46 commit refused by a transient error", testCommitTransient},
		{"FM47 commit blocked by a lock", testCommitBlocked},
		{"FM82 a record that cannot be read", testUnreadable},
		{"commit writes rows", testCommitRows},
		{"commit refuses one row", testCommitRowRefused},
		{"commit keeps rows and statements in order", testCommitRowsOrder},
		{"transactions write the rows of batches", testTxRows},
		{"commit joins acks", testCommitAcks},
		{"commit emits", testCommitEmits},
		{"FM61 dead letters of queues elsewhere", testFM61DeadLetterStore},
		{"FM72 rollback leaves no record", testFM72Rollback},
		{"FM69 conflict row that is not completed", testFM69Conflicts},
		{"FM70 commit, then the claims again", testFM70CommitRepeated},
		{"transactions join acks", testTxJoins},
		{"transactions write the effects of batches", testTxEffects},
		{"a thousand works in one transaction", testTxThousand},
		{"transactions and late writes", testTxLateWrite},
	}, slices.Concat(stepCases(), auditCases(), duplicateCases(), workerCases(), caseCases(), expiryCases())...)
}
