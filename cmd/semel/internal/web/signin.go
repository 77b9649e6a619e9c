package web

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

const cookieName = "semel-token"

// SignIn serves who has one of the tokens: a program sends it as a bearer token, a browser opens an address with ?token= once and
// gets a cookie. Others are refused. roles are by token; h finds that of a request with [Role].
func SignIn(h http.Handler, roles map[string]string, refuse func(http.ResponseWriter, *http.Request, Refusal)) http.Handler {
	var all []signIn
	for token := range roles {
		all = append(all, signIn{token: token, cookie: fmt.Sprintf("%x", sha256.Sum256([]byte("semel\x00"+token)))})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, s := range all { // before all cookies: the address says who signs in now
			if s.begins(w, r) {
				return
			}
		}
		for _, s := range all {
			if s.done(r) {
				h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), roleKey{}, roles[s.token])))
				return
			}
		}
		refuse(w, r, Refusal{http.StatusForbidden, "not_signed_in", "not signed in: open the address with ?token= that was printed at the start"})
	})
}

type roleKey struct{}

// Role is the role of who sent a request; "" before [SignIn].
func Role(r *http.Request) string {
	role, _ := r.Context().Value(roleKey{}).(string)
	return role
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
	to := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/"), RawQuery: q.Encode()} // never another host
	http.Redirect(w, r, to.String(), http.StatusSeeOther)
	return true
}

func (s *signIn) done(r *http.Request) bool {
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return same(bearer, s.token)
	}
	k, err := r.Cookie(cookieName)
	return err == nil && same(k.Value, s.cookie)
}
