package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const token = "t0ken"

func signedIn() http.Handler {
	roles := map[string]string{token: "operator", "v1ewer": "viewer"}
	return SignIn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Role", Role(r)) }), roles,
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
		`/\evil.example/x?token=` + token: "/%5Cevil.example/x",
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

// TestSignInAgain: an address with another token signs in anew, whatever cookie the browser has.
func TestSignInAgain(t *testing.T) {
	h := signedIn()
	cookie := func(token string, have ...*http.Cookie) *http.Cookie {
		r := httptest.NewRequest(http.MethodGet, "/?token="+token, nil)
		for _, c := range have {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusSeeOther {
			t.Fatalf("%s, with %v: %d", token, have, w.Code)
		}
		return w.Result().Cookies()[0]
	}
	operator := cookie(token)
	viewer := cookie("v1ewer", operator)
	cookie(token, viewer)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(viewer)
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Header().Get("Role") != "viewer" {
		t.Errorf("role %q", w.Header().Get("Role"))
	}
}
