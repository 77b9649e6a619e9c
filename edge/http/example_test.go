package edgehttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/semel-dev/semel"
	edgehttp "github.com/semel-dev/semel/edge/http"
	"github.com/semel-dev/semel/memory"
)

// A client that got no response repeats its request with the same key, and gets the first response: one charge.
func Example() {
	charges := 0
	idempotent, err := edgehttp.New(edgehttp.Options{
		Store:  memory.NewStore(), // sqlite or postgres in earnest
		Tenant: edgehttp.SingleTenant,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := httptest.NewServer(idempotent.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charges++
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "charge %d", charges)
	})))
	defer srv.Close()
	for _, amount := range []string{"100", "100", "999"} {
		r, _ := http.NewRequest(http.MethodPost, srv.URL+"/charges", strings.NewReader(amount))
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		fmt.Printf("%s replayed %q\n", resp.Status, resp.Header.Get("Idempotent-Replayed"))
	}
	fmt.Println(charges, "charges")
	// Output:
	// 201 Created replayed ""
	// 201 Created replayed "true"
	// 422 Unprocessable Entity replayed ""
	// 1 charges
}

// What a handler calls gets the same key in every attempt, and nothing after its lease has ended.
func ExampleTransport() {
	keys := map[string]bool{}
	bank := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		keys[r.Header.Get("Idempotency-Key")] = true
	}))
	defer bank.Close()
	client := &http.Client{Transport: &edgehttp.Transport{}}
	handler := func(ctx context.Context, _ *semel.Attempt) (string, error) {
		for _, step := range []string{"charge", "charge", "receipt"} {
			r, err := http.NewRequestWithContext(edgehttp.WithStep(ctx, step), http.MethodPost, bank.URL+"/"+step, nil)
			if err != nil {
				return "", err
			}
			resp, err := client.Do(r)
			if err != nil {
				return "", err
			}
			_ = resp.Body.Close()
		}
		return "done", nil
	}
	fmt.Println(semel.Do(context.Background(), memory.NewStore(), semel.Key{Consumer: "orders", Raw: "order-1"}, handler))
	fmt.Println(len(keys), "keys for 3 requests")
	// Output:
	// done executed <nil>
	// 2 keys for 3 requests
}
