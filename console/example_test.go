package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/semel-dev/semel/console"
	"github.com/semel-dev/semel/memory"
)

// Mount the console into your own service, behind your own login. Only operators may change something.
func Example() {
	db := memory.Open()
	c, err := console.New(console.Config{
		Queue: db.Queue("orders"), Store: db.Store(), Path: "/ops/semel",
		By:       func(r *http.Request) string { user, _, _ := r.BasicAuth(); return user },
		Operator: func(r *http.Request) bool { user, _, _ := r.BasicAuth(); return user == "yui" },
	})
	if err != nil {
		panic(err)
	}
	defer c.Close()

	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the shop") })
	mux.HandleFunc("/ops/semel/", func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth() // your login
		if user != "yui" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="operators"`)
			c.Refuse(w, r, http.StatusUnauthorized, "operators only")
			return
		}
		c.ServeHTTP(w, r)
	})

	for _, password := range []string{"guess", "secret"} {
		r := httptest.NewRequest(http.MethodGet, "/ops/semel/dead-letters", nil)
		r.SetBasicAuth("yui", password)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(password, w.Code)
	}
	// Output:
	// guess 401
	// secret 200
}
