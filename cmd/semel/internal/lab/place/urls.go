package place

import (
	"net/url"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
)

// URLs is where one run happens. It travels to the worker processes as JSON.
type URLs struct {
	// Queue and Store are the URLs of the run's own queue and records, as every command takes them. They may hold a password.
	Queue string `json:"queue"`
	Store string `json:"store"`
	// Fakes is the endpoint of the lab's own SQS and DynamoDB, "" where there are none: no credentials are looked for there.
	Fakes string `json:"fakes,omitempty"`
}

// File is the place that has everything in one SQLite file. path is absolute.
func File(path string) URLs {
	store := (&url.URL{Scheme: "sqlite", Path: path}).String()
	return URLs{Queue: addParam(store, "queue", QueueName), Store: store}
}

// Shown is the place for people: no password.
func (p URLs) Shown() URLs {
	return URLs{Queue: open.Redact(p.Queue), Store: open.Redact(p.Store), Fakes: p.Fakes}
}

// addParam adds a parameter to a URL, whatever its kind.
func addParam(raw, name, value string) string {
	sep := "?"
	if strings.Contains(raw, "?") {
		sep = "&"
	}
	return raw + sep + name + "=" + url.QueryEscape(value)
}
