// Package snippets declares what the Go snippets of the documentation take from around them.
package snippets

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/steps"
)

// Receipt is the result of a charge.
type Receipt struct{}

// ErrNoSuchOrder is an error of the program.
var ErrNoSuchOrder = errors.New("no such order")

var (
	ctx     context.Context
	t       *testing.T
	store   semel.Store
	handler semel.Handler
	broker  driver.Sender
	cfg     semel.Config
	db      *sqlite.DB
	orderID string
	url     string
	body    io.Reader
	airline booking
)

type booking struct{}

func (booking) Book(context.Context, string) (f Flight, err error) { return f, err }

func (booking) Cancel(_ context.Context, _, _, _ string) error { return nil }

func cancelHotel(context.Context, steps.Reversal) error { return nil }

func bookHotelAt(time.Time) func(context.Context, string) (string, error) { return nil }

func charge(context.Context, string) (r Receipt, err error) { return r, err }

func checkout(*http.Client) semel.Handler { return handler }
