package sqs

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestSDKForJavaScript is on a queue in memory, as the other clients are: nightly runs alone have the same session on both.
func TestSDKForJavaScript(t *testing.T) {
	if !semeltest.Nightly() {
		t.Skip("TestSDKForJavaScriptOnAFile is the same session; make nightly runs both")
	}
	contains(t, node(t, "sdk.mjs"), "session complete")
}

func TestSDKForJavaScriptOnAFile(t *testing.T) {
	contains(t, node(t, "sdk.mjs", "--queue", "sqlite:"+filepath.Join(t.TempDir(), "q.db")), "session complete")
}

func TestOldSDKForJavaScript(t *testing.T) { contains(t, node(t, "old.cjs"), "session complete") }

func TestSqsConsumer(t *testing.T) {
	contains(t, node(t, "consumer.mjs"), `{"handled":32,"twice":0,"dead":8}`)
}

// While responses are lost and the service throttles, sqs-consumer still handles everything at least once. Only its own calls are
// throttled: the script's calls have nothing that catches the error of a third throttled try.
func TestSqsConsumerWithFaults(t *testing.T) {
	out := node(t, "consumer.mjs", "--seed", "3", "--fault", "lost-response@DeleteMessage+DeleteMessageBatch=0.3", "--fault", "throttle@ReceiveMessage+DeleteMessage+DeleteMessageBatch=0.05",
		"--fault", "disorder=0.5")
	var got struct{ Handled, Dead int }
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Handled != 32 || got.Dead < 8 {
		t.Errorf("%s: want 32 handled, and the 8 that fail among the dead letters (%v)", out, err)
	}
}

// TestTheCommandLineOfAWS is a session of the aws command: produce, consume, extend, delete, dead letters.
func TestTheCommandLineOfAWS(t *testing.T) {
	bin := server.Command(t, "aws", "pip install awscli")
	e := start(t, "--create", "jobs,dlq=dead:1,visibility=60s")
	aws := func(args ...string) map[string]any {
		t.Helper()
		// Version 1 of the command does not read AWS_ENDPOINT_URL_SQS.
		out := e.client("", bin, append([]string{"--endpoint-url", e.url, "--output", "json", "sqs"}, args...)...)
		var response map[string]any
		if len(out) > 0 {
			if err := json.Unmarshal(out, &response); err != nil {
				t.Fatalf("aws sqs %v: %v\n%s", args, err, out)
			}
		}
		return response
	}
	url := e.queue("jobs")
	id := aws("send-message", "--queue-url", url, "--message-body", "größe",
		"--message-attributes", `{"kind":{"DataType":"String","StringValue":"greeting"}}`)["MessageId"]
	first := only(t, aws("receive-message", "--queue-url", url, "--wait-time-seconds", "2", "--message-attribute-names", "All"))
	if first["Body"] != "größe" || first["MessageId"] != id {
		t.Errorf("received %v, sent %v", first, id)
	}
	handle, _ := first["ReceiptHandle"].(string)
	aws("change-message-visibility", "--queue-url", url, "--receipt-handle", handle, "--visibility-timeout", "0")
	if again := e.bodies("jobs"); len(again) > 0 {
		t.Errorf("received %v: one receive was enough", again)
	}
	dead := e.queue("dead")
	deadLetter := only(t, aws("receive-message", "--queue-url", dead, "--attribute-names", "All"))
	handle, _ = deadLetter["ReceiptHandle"].(string)
	aws("delete-message", "--queue-url", dead, "--receipt-handle", handle)
	_, left := e.call("GetQueueAttributes", map[string]any{"QueueUrl": dead, "AttributeNames": []string{"All"}})
	contains(t, left, `"ApproximateNumberOfMessages":"0"`)
	contains(t, left, `"ApproximateNumberOfMessagesNotVisible":"0"`)
}

func only(t *testing.T, out map[string]any) map[string]any {
	t.Helper()
	list, _ := out["Messages"].([]any)
	if len(list) != 1 {
		t.Fatalf("received %v, want one message", out)
	}
	m, _ := list[0].(map[string]any)
	return m
}
