package fakedynamodb_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
)

// outcome is the result of one conditional write.
type outcome struct {
	sk   string
	seen int    // the version that the condition named
	won  bool   // it was written
	at   int    // the version that is there now
	by   string // its author
	me   string
}

// TestWritersAgainstAModel lets goroutines write a few items on the condition that no other did. In the order of versions
// the writes must be serial: every version has one author, and the error of each loser has a version that fails its
// condition, as its author wrote it. Meanwhile transactions move units between two other items, and every transactional read
// sees their sum unchanged.
func TestWritersAgainstAModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	_, c := begin(t, fakedynamodb.Options{})
	must(t, c, together(txPut(with("from", m{"n": num("100")}), ""), txPut(with("to", m{"n": num("0")}), "")), "ok")
	var mu sync.Mutex
	var all []outcome
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			known := map[string]int{}
			for i := range 60 {
				if r.IntN(4) == 0 {
					if err := move(t, c, r); err != nil {
						t.Error(err)
					}
					continue
				}
				o, err := attempt(t, c, strconv.Itoa(r.IntN(3)), known, fmt.Sprintf("%d-%d", g, i))
				if err != nil {
					t.Error(err)
					return
				}
				known[o.sk] = o.at
				mu.Lock()
				all = append(all, o)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := replay(all); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
}

// attempt writes version seen+1 if seen is still the version.
func attempt(t *testing.T, c *ddb.Client, sk string, known map[string]int, me string) (outcome, error) {
	o := outcome{sk: sk, seen: known[sk], me: me}
	in := &ddb.UpdateItemInput{
		TableName: rows, Key: key(sk), ReturnValues: "ALL_NEW", ReturnValuesOnConditionCheckFailure: "ALL_OLD",
		UpdateExpression:          aws.String("SET v = if_not_exists(v, :zero) + :one, author = :me"),
		ConditionExpression:       aws.String("attribute_not_exists(pk)"),
		ExpressionAttributeValues: m{":zero": num("0"), ":one": num("1"), ":me": str(me)},
	}
	if o.seen > 0 {
		in.ConditionExpression = aws.String("v = :seen")
		in.ExpressionAttributeValues[":seen"] = num(strconv.Itoa(o.seen))
	}
	out, err := c.UpdateItem(t.Context(), in)
	var there m
	failed := (*types.ConditionalCheckFailedException)(nil)
	switch {
	case err == nil:
		o.won, there = true, out.Attributes
	case errors.As(err, &failed):
		there = failed.Item
	default:
		return o, err
	}
	o.at, err = strconv.Atoi(showValue(there["v"]))
	o.by = showValue(there["author"])
	return o, err
}

// replay compares all outcomes with a serial history.
func replay(all []outcome) error {
	authors := map[string]map[int]string{}
	for _, o := range all {
		if !o.won {
			continue
		}
		if authors[o.sk] == nil {
			authors[o.sk] = map[int]string{}
		}
		if before := authors[o.sk][o.at]; before != "" {
			return fmt.Errorf("version %d of %s was written by %s and %s", o.at, o.sk, before, o.me)
		}
		if o.at != o.seen+1 || o.by != "'"+o.me+"'" {
			return fmt.Errorf("%s wrote upon version %d of %s and got version %d by %s", o.me, o.seen, o.sk, o.at, o.by)
		}
		authors[o.sk][o.at] = o.me
	}
	for sk, by := range authors {
		for v := 1; v <= len(by); v++ {
			if by[v] == "" {
				return fmt.Errorf("version %d of %d of %s has no author", v, len(by), sk)
			}
		}
	}
	for _, o := range all {
		if !o.won && (o.at == o.seen || o.by != "'"+authors[o.sk][o.at]+"'") {
			return fmt.Errorf("%s lost upon version %d of %s against version %d by %s, written by %q", o.me, o.seen, o.sk,
				o.at, o.by, authors[o.sk][o.at])
		}
	}
	return nil
}

// move takes units from one item, adds them to the other, and reads both.
func move(t *testing.T, c *ddb.Client, r *rand.Rand) error {
	n := strconv.Itoa(r.IntN(40))
	take := txUpdate("from", "SET n = n - :v", m{":v": num(n)})
	take.Update.ConditionExpression = aws.String("n >= :v")
	_, err := c.TransactWriteItems(t.Context(), together(take, txUpdate("to", "ADD n :v", m{":v": num(n)})))
	cancelled := (*types.TransactionCanceledException)(nil)
	if err != nil && !errors.As(err, &cancelled) {
		return err
	}
	out, err := c.TransactGetItems(t.Context(), &ddb.TransactGetItemsInput{TransactItems: []types.TransactGetItem{
		{Get: &types.Get{TableName: rows, Key: key("from")}}, {Get: &types.Get{TableName: rows, Key: key("to")}},
	}})
	if err != nil {
		return err
	}
	from, err := strconv.Atoi(showValue(out.Responses[0].Item["n"]))
	if err != nil {
		return err
	}
	to, err := strconv.Atoi(showValue(out.Responses[1].Item["n"]))
	if err != nil {
		return err
	}
	if from < 0 || from+to != 100 {
		return fmt.Errorf("%d and %d are not 100 together", from, to)
	}
	return nil
}
