package fakesqs_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestTheCommandLineOfAWS sends, receives and deletes with a client that shares no code with the SDK for Go, over a socket.
func TestTheCommandLineOfAWS(t *testing.T) {
	bin := server.Command(t, "aws", "pip install awscli")
	fake := fakesqs.New(fakesqs.Options{})
	server := httptest.NewServer(fake)
	defer server.Close()
	call := func(args ...string) map[string]any {
		t.Helper()
		cmd := exec.Command(bin, append([]string{"--endpoint-url", server.URL, "--output", "json", "sqs"}, args...)...)
		// Nothing of the caller's configuration is read, and no proxy stands between.
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "AWS_ACCESS_KEY_ID=semel", "AWS_SECRET_ACCESS_KEY=semel",
			"AWS_DEFAULT_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true", "NO_PROXY=127.0.0.1",
			"PYENV_ROOT=" + os.Getenv("PYENV_ROOT"), "PYENV_VERSION=" + os.Getenv("PYENV_VERSION"),
		}
		out, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatal(err)
			}
			t.Fatalf("aws sqs %v: %v\n%s", args, err, exit.Stderr)
		}
		if len(out) == 0 {
			return nil
		}
		var response map[string]any
		if err := json.Unmarshal(out, &response); err != nil {
			t.Fatalf("aws sqs %v: %v\n%s", args, err, out)
		}
		return response
	}
	url, _ := call("create-queue", "--queue-name", "jobs", "--attributes", "VisibilityTimeout=60")["QueueUrl"].(string)
	if url != server.URL+"/000000000000/jobs" {
		t.Fatalf("queue URL %q", url)
	}
	id := call("send-message", "--queue-url", url, "--message-body", "hello",
		"--message-attributes", `{"kind":{"DataType":"String","StringValue":"greeting"}}`)["MessageId"]
	got := call("receive-message", "--queue-url", url, "--message-attribute-names", "All", "--wait-time-seconds", "1",
		"--attribute-names", "All")
	messages, _ := got["Messages"].([]any)
	if len(messages) != 1 {
		t.Fatalf("received %v", got)
	}
	m, _ := messages[0].(map[string]any)
	if m["Body"] != "hello" || m["MessageId"] != id {
		t.Errorf("received %v, sent %v", m, id)
	}
	handle, _ := m["ReceiptHandle"].(string)
	call("delete-message", "--queue-url", url, "--receipt-handle", handle)
	if rest := fake.Messages("jobs"); len(rest) != 0 {
		t.Errorf("%v is left after the delete", rest)
	}
}
