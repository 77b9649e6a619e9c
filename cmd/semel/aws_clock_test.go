//go:build unix

package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest"
)

// TestFM42 shifts the time in the service's responses. Beyond the allowed clock difference doctor refuses, because running
// leases would be taken over.
func TestFM42_AClockThatIsOffIsRefused(t *testing.T) {
	c := newCloud(t, 1000)
	self, err := os.Executable()
	c.check(err)
	for _, x := range []struct {
		off    time.Duration
		params string
		status int
		says   string
	}{
		{0, "?", 0, "ok       clock"},
		{-time.Hour, "?", 3, "danger   clock"},
		{time.Minute, "?", 3, "danger   clock"},
		{time.Minute, "?skew=5m&", 0, "ok       clock"},
		{time.Minute, "?observe=on&", 0, "ok       clock        not compared"},
	} {
		off := x.off
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
			c.ServeHTTP(w, r)
		}))
		var out bytes.Buffer
		doctor := &exec.Cmd{Path: self, Stdout: &out, Stderr: &out, Args: []string{
			"semel", "doctor", "--queue", "sqs://" + queue + "?endpoint=" + server.URL,
			"--store", "dynamodb://" + records + x.params + "endpoint=" + server.URL, "--key", "json:/id", "--exec", "true",
		}, Env: []string{
			"AWS_ACCESS_KEY_ID=semel", "AWS_SECRET_ACCESS_KEY=semel", "AWS_REGION=" + awstest.Region, "AWS_EC2_METADATA_DISABLED=true",
			"HOME=" + t.TempDir(),
		}}
		_ = doctor.Run() // its exit status is looked at
		server.Close()
		if got := doctor.ProcessState.ExitCode(); got != x.status || !bytes.Contains(out.Bytes(), []byte(x.says)) {
			t.Errorf("%v off, %s: exit %d, want %d and %q\n%s", x.off, x.params, got, x.status, x.says, out.String())
		}
	}
}
