//go:build unix

package server

import (
	"os"
	"testing"
)

// TestRabbitMQStartsAgain takes half a minute: a node starts slowly.
func TestRabbitMQStartsAgain(t *testing.T) {
	needs(t, "rabbitmq")
	if os.Getenv("SEMEL_NIGHTLY") == "" {
		t.Skip("nightly")
	}
	s, err := RabbitMQ(t.Context(), Options{Settings: map[string]string{"consumer_timeout": "60000"}})
	if err != nil {
		LeaveOut(t, "rabbitmq", err.Error())
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, end := range []func() error{func() error { return s.Stop(Fast) }, s.Kill} {
		if err := tryRabbitMQ(t.Context(), s.URL()); err != nil {
			t.Error(err)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if tryRabbitMQ(t.Context(), s.URL()) == nil {
			t.Error("it still runs")
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
