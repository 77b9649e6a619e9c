package semel_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
)

// Updates that come while one runs become one run more, with the last of them.
func ExampleVersions_keepLast() {
	db := memory.Open()
	queue := db.Queue("carts")
	update := func(v int) semel.Message { return semel.Message{Body: fmt.Appendf(nil, `{"cart":"c1","v":%d}`, v)} }

	versions := semel.ByVersion("/v")
	versions.KeepLast = true
	done := make(chan struct{})
	var once sync.Once
	c, err := semel.New(semel.Config{
		Queue: queue, Store: db.Store(), Key: semel.KeyFromJSON("/cart"), Versions: versions, Limit: 4,
		Handler: semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
			fmt.Println("sync version", a.Version())
			if a.Version().String() != "1" {
				return nil
			}
			err := queue.Send(ctx, update(2), update(4), update(3)) // they come meanwhile
			<-done
			return err
		}),
		Events: semel.Observe(func(e semel.Event) {
			if e.Decision == semel.Stale {
				once.Do(func() { close(done) }) // one was passed over: the newest is noted
			}
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := queue.Send(context.Background(), update(1)); err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// sync version 1
	// sync version 4
}
