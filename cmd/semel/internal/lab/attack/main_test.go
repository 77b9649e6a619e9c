package attack_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/cli"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/attack"
	"github.com/semel-dev/semel/cmd/semel/internal/worker"
)

// The test binary is also semel, with its workers and guards, and the handlers that are attacked.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "work", "lab", worker.GuardArg, attack.ShimArg:
			os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		case "handler":
			os.Exit(handle(os.Args[2]))
		}
	}
	os.Exit(m.Run())
}

// handle is a handler program with a habit.
func handle(habit string) int {
	body, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 1
	}
	key, attempt := os.Getenv("SEMEL_EFFECT_KEY"), os.Getenv("SEMEL_ATTEMPT")
	if !bytes.Contains(body, []byte("amount")) && habit != "swallows" {
		fmt.Fprintln(os.Stderr, "no amount")
		return 65
	}
	switch habit {
	case "bare":
		key = ""
	case "forgets":
		if attempt != "1" {
			key = ""
		}
	case "renames":
		key += "-" + attempt
	case "constant":
		key = "charge"
	case "hangs":
		select {}
	case "blind":
		return 0
	case "journal":
		return note(os.Args[3])
	case "quits":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		go func() {
			<-asked
			os.Exit(0) // "stopped politely"
		}()
	case "swallows":
		if !bytes.Contains(body, []byte("amount")) {
			return 0
		}
	case "leaves":
		child := exec.Command(os.Args[0], "handler", "hangs")
		child.Stdin = strings.NewReader("amount")
		if child.Start() != nil {
			return 1
		}
	}
	return charge(habit, key, body)
}

// charge makes the effect, and returns its result.
func charge(habit, key string, body []byte) int {
	status, err := post(os.Getenv("ATTACK_URL")+"/charges", key, body)
	if habit == "twice" && err == nil && status < 300 {
		status, err = post(os.Getenv("ATTACK_URL")+"/mails", "", body)
	}
	switch {
	case habit == "shares" || habit == "repeats" || habit == "names":
		if status >= 300 && status != http.StatusConflict {
			return 1
		}
		switch habit {
		case "shares":
			body = bytes.Replace(body, []byte("charge"), []byte("shipping"), 1)
		case "names":
			sum := sha256.Sum256([]byte(key + "/charges/2"))
			key = hex.EncodeToString(sum[:])
		}
		if status, err = post(os.Getenv("ATTACK_URL")+"/charges", key, body); err != nil || status >= 300 {
			return 1
		}
		return 0
	case habit == "careless":
		return 0
	case habit == "drops" && (err != nil || status >= 300):
		return 99
	case habit == "blames" && (err != nil || status >= 300):
		return 75
	case err != nil:
		return 1
	case status < 300, status == http.StatusConflict && habit != "refuses":
		return 0
	case status == http.StatusTooManyRequests:
		return 75
	}
	return 1
}

func post(url, key string, body []byte) (status int, err error) {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	// A connection that breaks is the handler's to see: a client that repeats the request by itself would hide it.
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode, err
}

// note is an effect that no service sees: a line of a file.
func note(file string) int {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	_, err = fmt.Fprintf(f, "{\"key\":%q}\n", os.Getenv("SEMEL_KEY"))
	if err != nil || f.Close() != nil {
		return 1
	}
	return 0
}
