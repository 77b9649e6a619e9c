// Package look has the style that all pages of semel share: reports of the lab, its live view, and the console.
package look

import _ "embed"

// CSS is the common part of every style sheet: colors for light and dark, text, focus, the head of a page.
//
//go:embed base.css
var CSS string
