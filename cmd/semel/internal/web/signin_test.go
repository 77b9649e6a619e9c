package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const token = "t0ken"

func signedIn() http.Handler {
	return SignIn(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), token,
		func(w http.ResponseWriter, _ *http.Request, why Refusal) { w.WriteHeader(why.Status) })
}

// TestNotSignedIn: only the token, as a bearer token, and its cookie sign in.
func TestNotSignedIn(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"token":         {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }, http.StatusOK},
		"no token":      {func(*http.Request) {}, http.StatusForbidden},
		"another token": {func(r *http.Request) { r.Header.Set("Authorization", "Bearer t0ke") }, http.StatusForbidden},
		"token as cookie": {func(r *http.Request) {
			r.AddCookie(&http.Cookie{Name: cookieName, Value: token})
		}, http.StatusForbidden},
	} {
		r := httptest.NewRequest(http.MethodGet, "/console.css", nil)
		c.change(r)
		w := httptest.NewRecorder()
		signedIn().ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

// TestSignIn: the address with the token leads to the same page without it, and never to another host.
func TestSignIn(t *testing.T) {
	for path, want := range map[string]string{
		"/?token=" + token: "/", "/key?k=a+b&token=" + token: "/key?k=a+b", "//evil.example/x?token=" + token: "/evil.example/x",
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path, r.URL.RawQuery, _ = strings.Cut(path, "?")
		signedIn().ServeHTTP(w, r)
		res := w.Result()
		if got := res.Header.Get("Location"); got != want || len(res.Cookies()) != 1 || !res.Cookies()[0].HttpOnly || res.Cookies()[0].SameSite != http.SameSiteStrictMode {
			t.Fatalf("%s leads to %q, wanted %q, with %v", path, got, want, res.Cookies())
		}
		again := httptest.NewRequest(http.MethodGet, "/", nil)
		again.AddCookie(res.Cookies()[0])
		w = httptest.NewRecorder()
		if signedIn().ServeHTTP(w, again); w.Code != http.StatusOK {
			t.Errorf("with the cookie: %d", w.Code)
		}
	}
}
