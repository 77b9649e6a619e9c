//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/adapters/aws/awstest/moto"
	"github.com/semel-dev/semel/semeltest"
)

// TestScriptsAWS runs testdata/aws. Each script has an SQS and a DynamoDB of its own, fakes on one port of the loopback
// interface, whose URL is ENDPOINT; AWS_ENDPOINT_URL, AWS_REGION and credentials are set to it, and no file of AWS is read
// but $WORK/config. Nothing listens at NOTHING, SILENT never responds, and WEB is no service of AWS. Besides the commands of
// TestScripts there are:
//
//	aws count QUEUE              prints how many messages are visible, in flight and delayed
//	aws calls OPERATION          prints how often an operation was called, of either service
//	aws region | aws key         prints the region, the access key of the last request
//	aws deny OPERATION | allow   refuses an operation as a policy of IAM does; takes that back
//	aws items TABLE              prints how many items a table has
//	aws made FILE                fails unless the tables were made by exactly the requests that a file has
//	aws duplicate QUEUE          makes SQS hand out every message of a queue once more
//	idle SECONDS                 waits
func TestScriptsAWS(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/aws", Cmds: awsCommands(), RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			f := newFakes()
			srv := httptest.NewServer(f)
			e.Defer(srv.Close)
			e.Values[fakesKey{}] = f
			awsEnv(e, srv.URL)
			e.Setenv("NOTHING", "http://127.0.0.1:1")
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			e.Defer(func() { _ = silent.Close() })
			e.Setenv("SILENT", "http://"+silent.Addr().String())
			e.Setenv("WEB", srv.URL+"/web")
			return nil
		},
	})
}

// TestScriptsMoto runs testdata/moto: a script against somebody else's emulator, where there is one.
func TestScriptsMoto(t *testing.T) {
	if !semeltest.Nightly() {
		t.Skip("make nightly runs a script on moto_server too")
	}
	endpoint := moto.Start(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/moto", Cmds: awsCommands(), RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			awsEnv(e, endpoint)
			return nil
		},
	})
}

func awsEnv(e *testscript.Env, endpoint string) {
	for name, value := range map[string]string{
		"ENDPOINT": endpoint, "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": awstest.Region,
		"AWS_ACCESS_KEY_ID": "AKIDFROMENV", "AWS_SECRET_ACCESS_KEY": "semel-secret-0123", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": e.WorkDir + "/config", "AWS_SHARED_CREDENTIALS_FILE": e.WorkDir + "/credentials",
		"AWS_MAX_ATTEMPTS": "2",
	} {
		e.Setenv(name, value)
	}
}

func awsCommands() map[string]command {
	cmds := commands()
	cmds["aws"], cmds["idle"] = runAWS, idle
	return cmds
}

type fakesKey struct{}

// fakes is both services behind one port, by the header that names the operation.
type fakes struct {
	sqs    *fakesqs.Server
	dynamo *fakedynamodb.Server

	mu      sync.Mutex
	calls   map[string]int
	denied  map[string]bool
	made    []map[string]any
	lastKey string
	region  string
}

func newFakes() *fakes {
	return &fakes{
		sqs: fakesqs.New(fakesqs.Options{}), dynamo: fakedynamodb.New(fakedynamodb.Options{}),
		calls: map[string]int{}, denied: map[string]bool{},
	}
}

var scope = regexp.MustCompile(`Credential=([^/]+)/[0-9]+/([^/]+)/`)

func (f *fakes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	service, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	f.mu.Lock()
	f.calls[operation]++
	denied := f.denied[operation]
	if operation == "CreateTable" || operation == "UpdateTimeToLive" {
		b, err := io.ReadAll(r.Body)
		var body any
		if err == nil && json.Unmarshal(b, &body) == nil {
			f.made = append(f.made, map[string]any{operation: body})
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
	}
	if m := scope.FindStringSubmatch(r.Header.Get("Authorization")); m != nil {
		f.lastKey, f.region = m[1], m[2]
	}
	f.mu.Unlock()
	switch {
	case strings.HasPrefix(r.URL.Path, "/web"):
		_, _ = w.Write([]byte("<html>a web site</html>"))
	case denied && service == "AmazonSQS":
		refuse(w, "com.amazonaws.sqs#AccessDeniedException")
	case denied:
		refuse(w, "com.amazonaws.dynamodb.v20120810#AccessDeniedException")
	case service == "AmazonSQS":
		f.sqs.ServeHTTP(w, r)
	default:
		f.dynamo.ServeHTTP(w, r)
	}
}

func refuse(w http.ResponseWriter, code string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = fmt.Fprintf(w, `{"__type":%q,"message":"User: arn:aws:iam::000000000000:user/x is not authorized to perform it"}`, code)
}

func runAWS(ts *testscript.TestScript, neg bool, args []string) {
	f, _ := ts.Value(fakesKey{}).(*fakes)
	if neg || len(args) == 0 || f == nil {
		ts.Fatalf("usage: aws count|calls|items|region|key|made|deny|allow|duplicate")
	}
	args = append(args, "")
	f.mu.Lock()
	defer f.mu.Unlock()
	said := ""
	switch args[0] {
	case "count":
		visible, inFlight, delayed := f.sqs.Count(args[1])
		said = fmt.Sprintf("%d %d %d", visible, inFlight, delayed)
	case "calls":
		said = strconv.Itoa(f.calls[args[1]])
	case "items":
		items := f.dynamo.Items(args[1])
		if items == nil {
			ts.Fatalf("there is no table %s", args[1])
		}
		said = strconv.Itoa(len(withoutReports(items)))
	case "region":
		said = f.region
	case "key":
		said = f.lastKey
	case "made":
		var want []map[string]any
		ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &want))
		if !reflect.DeepEqual(f.made, want) {
			ts.Fatalf("made %v, want %v", f.made, want)
		}
	case "deny":
		f.denied[args[1]] = true
	case "allow":
		clear(f.denied)
	case "duplicate":
		for _, m := range f.sqs.Messages(args[1]) {
			if !f.sqs.Duplicate(args[1], m.ID) {
				ts.Fatalf("there is no message %s", m.ID)
			}
		}
	default:
		ts.Fatalf("unknown: aws %s", args[0])
	}
	_, err := ts.Stdout().Write([]byte(said + "\n"))
	ts.Check(err)
}

func idle(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: idle SECONDS")
	}
	s, err := strconv.ParseFloat(args[0], 64)
	ts.Check(err)
	time.Sleep(time.Duration(s * float64(time.Second))) // scripts wait for what is timed by real servers
}

// TestAWSScriptsAreRun keeps a misspelt folder from passing as no tests.
func TestAWSScriptsAreRun(t *testing.T) {
	for dir, least := range map[string]int{"aws": 8, "moto": 1} {
		files, err := os.ReadDir("testdata/" + dir)
		if err != nil || len(files) < least {
			t.Errorf("found %d scripts in testdata/%s: %v", len(files), dir, err)
		}
	}
}
