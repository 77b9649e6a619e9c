package open

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// A table that is being created looks like a missing one. The error must not say to create it.
func TestATableThatIsBeingMade(t *testing.T) {
	srv := httptest.NewServer(fakedynamodb.New(fakedynamodb.Options{CreateLag: time.Hour}))
	t.Cleanup(srv.Close)
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "semel", "AWS_SECRET_ACCESS_KEY": "semel", "AWS_REGION": awstest.Region, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": t.TempDir() + "/config", "AWS_SHARED_CREDENTIALS_FILE": t.TempDir() + "/credentials",
		"AWS_ENDPOINT_URL": srv.URL, "AWS_ENDPOINT_URL_DYNAMODB": "",
	} {
		t.Setenv(name, value)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var migrating sync.WaitGroup
	migrating.Go(func() { // waits until the table is there
		if _, _, _, err := Migrate(ctx, "dynamodb://records"); err == nil {
			t.Error("the table was there at once")
		}
	})
	defer migrating.Wait()
	defer cancel()
	says := func() *output.Error {
		set := New(Options{})
		_, err := set.Store(t.Context(), "dynamodb://records")
		if err == nil {
			t.Fatal("the table was opened")
		}
		return output.As(err)
	}
	got := says()
	for end := time.Now().Add(time.Minute); strings.Contains(got.Error(), "does not exist") && time.Now().Before(end); got = says() {
		time.Sleep(10 * time.Millisecond) // until the request has come
	}
	if got.Code != output.CodeUnreachable || got.Error() != "open dynamodb://records: the table is being made" ||
		!strings.Contains(got.Hint, "ACTIVE") {
		t.Errorf("%v; try: %s", got, got.Hint)
	}
}
