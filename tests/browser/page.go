package browser

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Look is how a page is looked at.
type Look struct {
	Width, Height       int
	Dark, ReducedMotion bool // prefers-color-scheme, prefers-reduced-motion
	// Zoom is the number of device pixels to a pixel; 0 = 1.
	Zoom float64
}

// Page is one tab. It notes every request and every complaint.
type Page struct {
	c       *Chromium
	session string
	loaded  chan struct{}

	mu         sync.Mutex
	requests   []string
	complaints []string
}

// Open opens a URL in a new tab, and waits until it is loaded.
func (c *Chromium) Open(url string, l Look) (*Page, error) {
	raw, err := c.call("", "Target.createTarget", map[string]any{"url": "about:blank"})
	if err != nil {
		return nil, err
	}
	var target struct {
		TargetID string `json:"targetId"`
	}
	if err := json.Unmarshal(raw, &target); err != nil {
		return nil, fmt.Errorf("read the new tab's id: %w", err)
	}
	raw, err = c.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true})
	if err != nil {
		return nil, err
	}
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	if err := json.Unmarshal(raw, &attached); err != nil {
		return nil, fmt.Errorf("read the session's id: %w", err)
	}
	p := &Page{c: c, session: attached.SessionID, loaded: make(chan struct{}, 8)}
	c.mu.Lock()
	c.pages[p.session] = p
	c.mu.Unlock()
	for _, method := range []string{"Page.enable", "Runtime.enable", "Network.enable", "Log.enable"} {
		if _, err := c.call(p.session, method, nil); err != nil {
			return nil, err
		}
	}
	if err := p.Look(l); err != nil {
		return nil, err
	}
	if _, err := c.call(p.session, "Page.navigate", map[string]any{"url": url}); err != nil {
		return nil, err
	}
	select {
	case <-p.loaded:
		return p, nil
	case <-time.After(wait):
		return nil, fmt.Errorf("%s is not loaded within %s", url, wait)
	}
}

// Look changes how the page is looked at.
func (p *Page) Look(l Look) error {
	if l.Zoom == 0 {
		l.Zoom = 1
	}
	_, err := p.c.call(p.session, "Emulation.setDeviceMetricsOverride", map[string]any{
		"width": l.Width, "height": l.Height, "deviceScaleFactor": l.Zoom, "mobile": l.Width < 600,
	})
	if err != nil {
		return err
	}
	choose := func(yes bool, a, b string) string {
		if yes {
			return a
		}
		return b
	}
	_, err = p.c.call(p.session, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": choose(l.Dark, "dark", "light")},
		{"name": "prefers-reduced-motion", "value": choose(l.ReducedMotion, "reduce", "no-preference")},
	}})
	return err
}

func (p *Page) event(method string, params json.RawMessage) {
	var e struct {
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
		Exception struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
		Entry struct {
			Level string `json:"level"`
			Text  string `json:"text"`
		} `json:"entry"`
	}
	if json.Unmarshal(params, &e) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch method {
	case "Page.loadEventFired":
		select {
		case p.loaded <- struct{}{}:
		default:
		}
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, e.Request.URL)
	case "Runtime.exceptionThrown":
		p.complaints = append(p.complaints, e.Exception.Text+" "+e.Exception.Exception.Description)
	case "Log.entryAdded":
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			p.complaints = append(p.complaints, e.Entry.Text)
		}
	}
}

// Requests are the URLs that the page asked for, its own first. Complaints are the errors of its scripts and policies.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.requests...)
}

// Complaints are the errors of the page's scripts, and what its policy forbade.
func (p *Page) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.complaints...)
}

// Eval runs JavaScript, awaits its result, and decodes the value into out (nil: it is dropped).
func (p *Page) Eval(script string, out any) error {
	raw, err := p.c.call(p.session, "Runtime.evaluate", map[string]any{
		"expression": script, "returnByValue": true, "awaitPromise": true,
	})
	if err != nil {
		return err
	}
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result,omitempty"`
		Exception *struct {
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("read the result of the script: %w", err)
	}
	if r.Exception != nil {
		return fmt.Errorf("the script failed: %s", r.Exception.Exception.Description)
	}
	if out == nil || len(r.Result.Value) == 0 {
		return nil
	}
	if err := json.Unmarshal(r.Result.Value, out); err != nil {
		return fmt.Errorf("decode the result of the script: %w", err)
	}
	return nil
}

// Until waits until a JavaScript expression is true.
func (p *Page) Until(expression string, within time.Duration) error {
	script := fmt.Sprintf(`new Promise((ok) => { const end = Date.now() + %d;
		const look = () => { let v = false; try { v = !!(%s); } catch (e) {} if (v || Date.now() > end) ok(v); else setTimeout(look, 50); };
		look(); })`, within.Milliseconds(), expression)
	var yes bool
	err := p.Eval(script, &yes)
	for until := time.Now().Add(within); err != nil && strings.Contains(err.Error(), "navigated") && time.Now().Before(until); {
		err = p.Eval(script, &yes) // another page came: look there
	}
	if err != nil {
		return err
	}
	if !yes {
		return fmt.Errorf("after %s it is not true that %s", within, strings.TrimSpace(expression))
	}
	return nil
}

// Press presses a key, as a person does: "Tab", "Enter", "Escape".
func (p *Page) Press(key string) error {
	code := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27}[key]
	text := ""
	if key == "Enter" {
		text = "\r"
	}
	for _, kind := range []string{"keyDown", "keyUp"} {
		_, err := p.c.call(p.session, "Input.dispatchKeyEvent", map[string]any{
			"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Close closes the tab.
func (p *Page) Close() error {
	_, err := p.c.call(p.session, "Page.close", nil)
	return err
}

// Shot is a PNG of the whole page.
func (p *Page) Shot() ([]byte, error) {
	raw, err := p.c.call(p.session, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true})
	if err != nil {
		return nil, err
	}
	var r struct {
		Data string `json:"data"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("read the picture: %w", err)
	}
	b, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		return nil, fmt.Errorf("decode the picture: %w", err)
	}
	return b, nil
}
