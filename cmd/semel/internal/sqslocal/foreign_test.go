package sqslocal_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/sqslocal"
)

// TestForeignPages asserts that no web page changes anything: neither its images or forms, nor a script under a name that
// points at this machine.
func TestForeignPages(t *testing.T) {
	l := newLocal(t, "q")
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	target := []string{"X-Amz-Target", "AmazonSQS.DeleteQueue", "Content-Type", "application/x-amz-json-1.0"}
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		head                     []string
	}{
		{"an image", "GET", "/?Action=CreateQueue&QueueName=pwned", "", 405, nil},
		{"an image of an old browser", "GET", "/000000000000/q?Action=DeleteQueue", "", 405, nil},
		{"a HEAD", "HEAD", "/000000000000/q?Action=DeleteQueue", "", 400, nil}, // not of the protocol
		{"a link that hides messages", "GET", "/000000000000/q?Action=ReceiveMessage", "", 405, nil},
		{"a form", "POST", "/000000000000/q", "Action=SendMessage&MessageBody=x", 403, append([]string{"Sec-Fetch-Site", "cross-site"}, form...)},
		{"a form of an old browser", "POST", "/000000000000/q", "Action=SendMessage&MessageBody=x", 403, append([]string{"Origin", "http://evil.example:19999"}, form...)},
		{"a script in a sandbox", "POST", "/", `{"QueueUrl":"` + l.url + `/000000000000/q"}`, 403, append([]string{"Origin", "null"}, target...)},
		{"a rebound name", "POST", "/", `{"QueueUrl":"` + l.url + `/000000000000/q"}`, 421, append([]string{"Host", "evil.example:9324", "Origin", "http://evil.example:9324"}, target...)},
		{"a rebound name reads", "GET", "/?Action=ListQueues", "", 421, []string{"Host", "evil.example:9324"}},
		{"faults under a rebound name", "PUT", sqslocal.FaultsPath, `{"faults":{"cut":1}}`, 421, []string{"Host", "evil.example:9324"}},
		{"faults from another origin", "PUT", sqslocal.FaultsPath, `{"faults":{"cut":1}}`, 403, []string{"Sec-Fetch-Site", "cross-site"}},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, l.url+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(c.head); i += 2 {
			if c.head[i] == "Host" {
				r.Host = c.head[i+1]
			}
			r.Header.Set(c.head[i], c.head[i+1])
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != c.status {
			t.Errorf("%s: %s, want %d", c.name, res.Status, c.status)
		}
	}
	// Reading by GET is fine, and shows that nothing happened.
	status, text, err := l.do("GET", "/?Action=ListQueues", "")
	if err != nil || status != 200 || strings.Contains(text, "pwned") || !strings.Contains(text, "/q</QueueUrl>") {
		t.Errorf("ListQueues: %d %s %v", status, text, err)
	}
	status, text, err = l.do("GET", "/000000000000/q?Action=GetQueueAttributes&AttributeName.1=ApproximateNumberOfMessages", "")
	if err != nil || status != 200 || !strings.Contains(text, "<Value>0</Value>") {
		t.Errorf("GetQueueAttributes: %d %s %v", status, text, err)
	}
	if _, text, _ := l.do("GET", sqslocal.FaultsPath, ""); !strings.Contains(text, `"faults":{}`) {
		t.Errorf("faults: %s", text)
	}
}
