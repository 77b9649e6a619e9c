package fakedynamodb_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/semeltest/server"
)

// socket serves a fake with the table "rows" on a loopback port, and makes clients with separate connections.
func socket(t *testing.T) (url string, client func() *ddb.Client) {
	t.Helper()
	fake, _ := begin(t, fakedynamodb.Options{})
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	return server.URL, func() *ddb.Client {
		return ddb.NewFromConfig(aws.Config{
			Region: awstest.Region, BaseEndpoint: &server.URL, RetryMaxAttempts: 1,
			Credentials: credentials.NewStaticCredentialsProvider("semel", "semel", ""),
		})
	}
}

// TestTwoClientsOnASocket: every change of two clients counts, and of two concurrent puts of a new item one succeeds.
func TestTwoClientsOnASocket(t *testing.T) {
	_, client := socket(t)
	const each = 30
	var mu sync.Mutex
	made := map[string]int{}
	var wg sync.WaitGroup
	for range 2 {
		c := client()
		wg.Go(func() {
			for i := range each {
				if _, err := c.UpdateItem(t.Context(), update("ADD n :v", m{":v": num("1")})); err != nil {
					t.Error(err)
				}
				sk := fmt.Sprint("x", i)
				_, err := c.TransactWriteItems(t.Context(), together(txPut(key(sk), "attribute_not_exists(pk)")))
				mu.Lock()
				made[sk+" "+show(&ddb.TransactWriteItemsOutput{}, err)]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	must(t, client(), get("a"), fmt.Sprintf("{n:%d sk:'a'}", 2*each))
	for i := range each {
		sk := fmt.Sprint("x", i)
		if made[sk+" ok"] != 1 || made[sk+" TransactionCanceledException ConditionalCheckFailed{sk:'"+sk+"'}"] != 1 {
			t.Fatalf("%s was not put by one of the two: %v", sk, made)
		}
	}
}

// TestTheCommandLineOfAWS reads, writes and fails with a client that shares no code with the SDK for Go, over a socket.
func TestTheCommandLineOfAWS(t *testing.T) {
	bin := server.Command(t, "aws", "pip install awscli")
	url, client := socket(t)
	call := func(args ...string) (string, error) {
		cmd := exec.Command(bin, append([]string{"--endpoint-url", url, "--output", "json", "dynamodb"}, args...)...)
		// Nothing of the caller's configuration is read, and no proxy stands between.
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "AWS_ACCESS_KEY_ID=semel", "AWS_SECRET_ACCESS_KEY=semel",
			"AWS_DEFAULT_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true", "NO_PROXY=127.0.0.1",
			"PYENV_ROOT=" + os.Getenv("PYENV_ROOT"), "PYENV_VERSION=" + os.Getenv("PYENV_VERSION"),
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := call("update-item", "--table-name", "rows", "--key", `{"pk":{"S":"p"},"sk":{"S":"a"}}`, "--update-expression",
		"SET v = :v", "--expression-attribute-values", `{":v":{"S":"\u00e9"}}`, "--return-values", "ALL_NEW")
	if err != nil || !strings.Contains(out, `"\u00e9"`) && !strings.Contains(out, `"é"`) {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, client(), get("a"), "{sk:'a' v:'é'}")
	out, err = call("put-item", "--table-name", "rows", "--item", `{"pk":{"S":"p"},"sk":{"S":"a"}}`,
		"--condition-expression", "attribute_not_exists(pk)")
	if err == nil || !strings.Contains(out, "ConditionalCheckFailedException") {
		t.Errorf("put again: %v: %s", err, out)
	}
}
