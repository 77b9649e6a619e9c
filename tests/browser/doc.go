// Package browser looks at semel's pages in a headless Chromium: the lab's report and its live view. Where no Chromium is
// installed its tests leave themselves out, and say so.
package browser
