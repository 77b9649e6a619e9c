package lab

import (
	"os"
	"testing"
)

func TestScratch(t *testing.T) {
	v, err := demo(t, DemoOptions{Seed: 42, Report: "/tmp/demo.html", Keep: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = WriteText(os.Stdout, v, true, 100)
}
