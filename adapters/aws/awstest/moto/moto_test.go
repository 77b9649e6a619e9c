package moto

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

func TestMotoEndsWithItsTest(t *testing.T) {
	var url string
	t.Run("server", func(t *testing.T) { url = Start(t) })
	if url == "" {
		t.Skip("there was no moto_server")
	}
	res, err := http.Get(url + "/moto-api/data.json")
	if err == nil {
		res.Body.Close()
		t.Fatalf("%s responds %s after the test that started it", url, res.Status)
	}
}

// Two tests that start a moto at once can get the same port: the second must not take the first one's server for its own.
func TestAnotherMotoIsNotTakenForOnesOwn(t *testing.T) {
	url := Start(t)
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	bin, err := exec.LookPath("moto_server")
	if err != nil {
		t.Fatal(err)
	}
	if other, ok := start(t, sh, bin, url[strings.LastIndexByte(url, ':')+1:]); ok {
		t.Errorf("started a second server at %s, where there is one", other)
	}
}
