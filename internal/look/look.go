// Package look has the style that all pages of semel share: reports of the lab, its live view, and the console.
package look

import (
	_ "embed"
	"net/http"
)

// CSS is the common part of every style sheet: colors for light and dark, text, focus, the head of a page.
//
//go:embed base.css
var CSS string

// Headers sets the headers of a page and of what belongs to it: nothing is kept, framed, or loaded from elsewhere. forms is
// the source of Content-Security-Policy that forms may be sent to.
func Headers(h http.Header, forms string) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "+
		"base-uri 'none'; form-action "+forms+"; frame-ancestors 'none'")
}
