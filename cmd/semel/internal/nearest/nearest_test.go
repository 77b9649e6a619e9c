package nearest

import "testing"

func TestName(t *testing.T) {
	known := []string{"queue", "sslmode", "search_path"}
	for name, want := range map[string]string{
		"qeueu": "queue", "Queue": "queue", "ssl_mode": "sslmode", "search-path": "search_path", "timezone": "", "": "",
	} {
		if got := Name(name, known, 3); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
