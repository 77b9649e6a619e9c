package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// axeVersion is the release of axe-core, which checks pages against WCAG.
const axeVersion = "4.14.1"

// fetchAxe returns the script of axe-core out of the npm registry.
func fetchAxe() (string, error) {
	dir, err := os.MkdirTemp("", "semel-axe-")
	if err != nil {
		return "", fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "npm", "install", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", "axe-core@"+axeVersion).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("npm install axe-core: %w: %.300s", err, out)
	}
	script, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		return "", fmt.Errorf("read axe-core: %w", err)
	}
	return string(script), nil
}

// axeRun lists what axe-core finds on a page, by the rules of WCAG 2.2 at the levels A and AA and of good practice.
const axeRun = `axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then((r) =>
	r.violations.map((v) => v.id + " (" + v.help + "): " + v.nodes.map((n) => n.target.join(" ") + " " + n.html.slice(0, 150)).join("; ")))`

// axeLooks are the ways in which axe-core looks at a page.
var axeLooks = map[string]Look{
	"wide-light":   {Width: 1600, Height: 900},
	"wide-dark":    {Width: 1600, Height: 900, Dark: true},
	"narrow-light": {Width: 360, Height: 800},
	"narrow-dark":  {Width: 360, Height: 800, Dark: true},
}
