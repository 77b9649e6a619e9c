// Package browser tests semel's pages in a headless Chromium: the lab's report and its live view. If no Chromium is
// installed, its tests are skipped with a message.
package browser
