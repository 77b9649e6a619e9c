package fakedynamodb_test

import (
	"os"
	"testing"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/semel-dev/semel/adapters/aws/awstest/moto"
	"github.com/semel-dev/semel/semeltest/server"
)

const (
	crashes = "moto 5.2.1 returns HTTP 500"
	takes   = "moto does not check this"
	asIs    = "moto keeps the text of numbers as it came"
	whole   = "moto returns the whole attribute, not the part"
	noUnits = "moto does not count capacity units by size"
	ownRule = "moto's own rule"
)

// motoDiffers are the rows with which moto 5.2.1 does not behave as documented.
var motoDiffers = map[string]string{
	"condition/other type has no order":             crashes,
	"update/path through a number":                  "moto ignores the path",
	"update/too many digits":                        crashes,
	"update/returns UPDATED_NEW":                    whole,
	"update/returns UPDATED_OLD":                    whole,
	"update/without expression makes an item":       crashes,
	"update/remove makes no item":                   ownRule + ": REMOVE makes an item",
	"value/zeros are trimmed":                       asIs,
	"value/exponents are written out":               asIs,
	"value/largest":                                 asIs,
	"value/smallest":                                asIs,
	"value/too large":                               takes,
	"value/39 digits":                               takes,
	"value/duplicates in a set":                     takes,
	"value/equal numbers in a set":                  takes,
	"value/400 KB":                                  ownRule + " of sizes",
	"refused/undefined value":                       crashes,
	"refused/undefined name":                        crashes,
	"refused/name without sign":                     crashes,
	"refused/empty expression":                      takes,
	"refused/syntax":                                crashes,
	"refused/leading underscore":                    takes,
	"refused/functions have lower case":             crashes,
	"refused/number of arguments":                   crashes,
	"refused/size alone":                            crashes,
	"refused/function as a value":                   crashes,
	"refused/order of bools":                        takes,
	"refused/begins with a number":                  takes,
	"refused/unknown type":                          takes,
	"refused/bounds":                                takes,
	"refused/long expression":                       takes,
	"refused/expected":                              takes,
	"refused/size of a number":                      crashes,
	"ttl":                                           takes,
	"condition/an operand in parentheses":           crashes,
	"condition/an operand twice":                    crashes,
	"refused/redundant parentheses of an operand":   crashes,
	"refused/an attribute and itself":               takes,
	"refused/a function of an attribute and itself": takes,
	"refused/301 operators":                         takes,
	"refused/301 operators of an update":            crashes,
	"page/or":                                       crashes,
	"page/two conditions":                           takes,
	"page/key in filter":                            takes,
	"page/type of the key":                          takes,
	"page/start outside":                            takes,
	"page/batches":                                  takes,
	"page/projection":                               takes,
	"transaction/an update that cannot be":          "moto refuses the request instead of cancelling",
	"transaction/token":                             "moto ignores ClientRequestToken",
	"transaction/get":                               "moto ignores projections in transactions",
	"capacity/write of a KB and a byte":             noUnits,
	"capacity/larger of before and after":           noUnits,
	"capacity/delete":                               noUnits,
	"capacity/read of 4 KB":                         noUnits,
	"capacity/read of 4 KB and a byte":              noUnits,
	"capacity/read of nothing":                      noUnits,
	"capacity/transactions cost twice":              noUnits,
	"capacity/query by the sum of sizes":            noUnits,
}

// TestDocumentedResponsesOfMoto compares the same rows with another implementation of the documentation.
func TestDocumentedResponsesOfMoto(t *testing.T) {
	known := map[string]bool{}
	compare(t, moto.Start(t), func(t *testing.T, r row, problems []string) {
		known[r.name] = true
		why := motoDiffers[r.name]
		switch {
		case why != "" && len(problems) == 0:
			t.Logf("listed as different (%s), and is not", why)
		case why == "":
			for _, p := range problems {
				t.Error(p)
			}
		}
	})
	for name := range motoDiffers {
		if !known[name] {
			t.Errorf("%q is listed and no row", name)
		}
	}
}

// TestDocumentedResponsesOfDynamoDBLocal needs a server that the user starts: its licence is between them and the vendor.
func TestDocumentedResponsesOfDynamoDBLocal(t *testing.T) {
	endpoint := os.Getenv("SEMEL_TEST_DYNAMODB")
	if endpoint == "" {
		server.LeaveOut(t, "dynamodb", "SEMEL_TEST_DYNAMODB does not name the endpoint of a DynamoDB Local")
	}
	compare(t, endpoint, func(t *testing.T, _ row, problems []string) {
		for _, p := range problems {
			t.Error(p)
		}
	})
}

func compare(t *testing.T, endpoint string, judge func(t *testing.T, r row, problems []string)) {
	c := ddb.NewFromConfig(moto.Config(endpoint))
	for _, r := range documented() {
		t.Run(r.name, func(t *testing.T) { judge(t, r, runRow(t, c, r, false)) })
	}
}
