package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
)

const cookieName = "semel-token"

// SignIn serves who has the token: a program sends it as a bearer token, a browser opens an address with ?token= once and gets a
// cookie. Others are refused.
func SignIn(h http.Handler, token string, refuse func(http.ResponseWriter, *http.Request, Refusal)) http.Handler {
	s := signIn{token: token, cookie: fmt.Sprintf("%x", sha256.Sum256([]byte("semel\x00"+token)))}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.begins(w, r):
		case !s.done(r):
			refuse(w, r, Refusal{http.StatusForbidden, "not_signed_in", "not signed in: open the address with ?token= that was printed at the start"})
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// signIn has the token, and what a browser sends instead of it, so that the token does not stay in the browser.
type signIn struct{ token, cookie string }

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// begins redirects a browser that has the token to the same page without it.
func (s *signIn) begins(w http.ResponseWriter, r *http.Request) bool {
	q := r.URL.Query()
	if !q.Has("token") || r.Method != http.MethodGet || !same(q.Get("token"), s.token) {
		return false
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: s.cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	q.Del("token")
	to := "/" + strings.TrimLeft(r.URL.Path, "/") // never another host
	if len(q) > 0 {
		to += "?" + q.Encode()
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
	return true
}

func (s *signIn) done(r *http.Request) bool {
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return same(bearer, s.token)
	}
	k, err := r.Cookie(cookieName)
	return err == nil && same(k.Value, s.cookie)
}
