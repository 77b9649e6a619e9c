package moto_test

import (
	"net/http"
	"testing"

	"github.com/semel-dev/semel/adapters/aws/awstest/moto"
)

func TestMotoEndsWithItsTest(t *testing.T) {
	var url string
	t.Run("server", func(t *testing.T) { url = moto.Start(t) })
	if url == "" {
		t.Skip("there was no moto_server")
	}
	res, err := http.Get(url + "/moto-api/data.json")
	if err == nil {
		res.Body.Close()
		t.Fatalf("%s answers %s after the test that started it", url, res.Status)
	}
}
