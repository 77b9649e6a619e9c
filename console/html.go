package console

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/look"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// view is the content of a page, which is also its JSON.
type view interface{ html(c *Console) look.HTML }

// tabs are the pages that the head of each page leads to.
var tabs = []struct{ Page, Path, Title string }{
	{"overview", "/", "Overview"}, {"deadletters", "/dead-letters", "Dead letters"}, {"workers", "/workers", "Workers"},
	{"auditlog", "/audit-log", "Audit log"},
}

var titles = map[string]string{
	"overview": "Overview", "deadletters": "Dead letters", "deadletter": "Dead letter", "auditlog": "Audit log", "key": "Key", "workers": "Workers",
	"plan": "Redrive", "redrive": "Redrive", "discarded": "Discarded", "error": "Error",
}

// frame is a page with what is around its content.
func (c *Console) frame(name string, v view) look.HTML {
	nav, who := look.HTML(""), "read only"
	if c.cfg.Operate {
		who = "operations allowed"
	}
	for _, t := range tabs {
		nav += look.Format("<li><a href=\"{}\"{}>{}</a></li>\n", c.url(t.Path), look.If(t.Page == name, ` aria-current="page"`), t.Title)
	}
	queue := text(c.cfg.Queue.Features().Name)
	return look.Format(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{} · {} · semel</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{}">
<script src="{}" defer></script>
</head>
<body>
<a class="jump" href="#main">Skip to the content</a>
<header class="top wrap">
  <p class="brand"><span class="mark" aria-hidden="true"></span>semel <span class="quiet">{}</span></p>
  <form action="{}" role="search"><label class="sr" for="search">Key</label><input id="search" name="k" required placeholder="find a key" autocomplete="off" spellcheck="false"><button>Find</button></form>
  <p class="who">{}</p>
</header>
<nav class="tabs" aria-label="Pages"><ul class="wrap">
{}</ul></nav>
<main id="main" class="wrap" tabindex="-1">
{}
</main>
<footer class="wrap">as of {} UTC <span id="live" role="status"></span></footer>
</body>
</html>
`, titles[name], queue, c.url("/console.css"), c.url("/console.js"), queue, c.url("/key"), who, nav, v.html(c), stamp(time.Now()))
}

func (c *Console) url(to string) string { return c.cfg.Path + to }

// text is text from elsewhere on one line; short has at most 80 characters.
func text(s string) string  { return words.Printable(s, 0) }
func short(s string) string { return words.Printable(s, 80) }

func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// ago is how long ago a time was, or how far it is away.
func ago(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	d := time.Since(t)
	unit := time.Second
	switch a := d.Abs(); {
	case a >= 48*time.Hour:
		unit = 24 * time.Hour
	case a >= time.Hour:
		unit = time.Hour
	case a >= time.Minute:
		unit = time.Minute
	}
	if d < 0 {
		return "in " + driver.DurationText((-d).Truncate(unit))
	}
	return driver.DurationText(d.Truncate(unit)) + " ago"
}

// since is the cell of a table that says how long ago a time was.
func since(t time.Time) look.HTML { return look.Format(`<td title="{}">{}</td>`, stamp(t), ago(t)) }

// reasonOr is a reason on one line.
func reasonOr(reason string) string {
	if reason == "" {
		return "no reason given"
	}
	return text(reason)
}

// fact is one line of a list of facts.
func fact(name string, value any) look.HTML {
	return look.Format(`<div><dt>{}</dt><dd>{}</dd></div>`, name, value)
}

func code(s string) look.HTML { return look.Format(`<code>{}</code>`, text(s)) }

// table is a table that scrolls by itself on a narrow screen. head are its columns, rows its body.
func table(label string, head, rows look.HTML) look.HTML {
	return look.Format(`<div class="scroll" role="region" aria-label="{}" tabindex="0"><table>
<caption class="sr">{}</caption>
<thead><tr>{}</tr></thead>
<tbody>{}</tbody></table></div>`, label, label, head, rows)
}

func columns(names ...string) look.HTML {
	return look.Each(names, func(name string) look.HTML { return look.Format(`<th scope="col">{}</th>`, name) })
}

// hidden is a field of a form that nobody sees.
func hidden(name string, value any) look.HTML {
	return look.Format(`<input type="hidden" name="{}" value="{}">`, name, value)
}

// reason is the field for the reason of an operation. id tells it from others of the page.
func reason(id string) look.HTML {
	return look.Format(`<label for="reason-{}">Reason</label><input id="reason-{}" name="reason" required maxlength="500" placeholder="why, for the audit log" autocomplete="off">`, id, id)
}

func (c *Console) keyLink(k driver.Key) look.HTML {
	if k.Raw == "" {
		return "no key"
	}
	q := url.Values{"k": {k.Raw}}
	if k.Consumer != "" {
		q.Set("consumer", k.Consumer)
	}
	if k.Tenant != "" {
		q.Set("tenant", k.Tenant)
	}
	return look.Format(`<a href="{}"><code>{}</code></a>{}`, c.url("/key?"+q.Encode()), short(k.Raw),
		look.If(k.Tenant != "", look.Format(` <span class="quiet">{}</span>`, short(k.Tenant))))
}

func (c *Console) deadLetterURL(id string) string {
	return c.url("/dead-letter?id=" + url.QueryEscape(id))
}

func (v errorView) html(*Console) look.HTML {
	return look.Format(`<div class="state bad"><h1>{} {}</h1><p>{}</p></div>`, v.Status, v.Name, text(v.Error))
}

func (v workersView) html(c *Console) look.HTML {
	list := look.HTML(`<p class="empty">No worker has reported: one reports a second after its start.</p>`)
	switch {
	case !v.Kept:
		list = `<p class="empty">This store keeps no reports of workers.</p>`
	case len(v.Workers) > 0:
		list = table("Workers", columns("Worker", "Consumer", "Settings", "Started", "Seen")+`<th scope="col" class="num">Running</th>`+columns("State", "Holds"),
			look.Each(v.Workers, c.workerRow))
	}
	return look.Format(`<h1>Workers</h1>
<div id="workers" data-live>
{}{}
</div>`, look.Each(v.Differ, func(d ops.Difference) look.HTML {
		return look.Format(`<div class="state warn"><p>{}</p></div>`, text(d.String()))
	}), list)
}

func (c *Console) workerRow(w ops.Worker) look.HTML {
	level, state := "good", "works"
	switch {
	case w.Silent:
		level, state = "bad", "silent"
	case w.Paused != "":
		level, state = "warn", "paused"
	}
	return look.Format("<tr><td>{}{}</td><td>{}</td><td>{}</td>{}{}<td class=\"num\">{}</td><td><span class=\"tag {}\">{}</span>{}</td><td>{}</td></tr>\n",
		code(w.Name), look.If(w.Version != "", look.Format(` <span class="quiet">{}</span>`, text(w.Version))), text(w.Consumer),
		look.Each(slices.Sorted(maps.Keys(w.Settings)), func(name string) look.HTML {
			return look.Format(`{} {}<br>`, text(name), code(w.Settings[name]))
		}), since(w.Started), since(w.Seen), w.Running, level, state, look.If(w.Paused != "", look.Format(` {}`, text(w.Paused))),
		look.Each(w.Holds, func(h ops.WorkerHold) look.HTML {
			return look.Format(`{} <span class="quiet">{}</span><br>`, c.keyLink(driver.Key{Consumer: w.Consumer, Tenant: h.Tenant, Raw: h.Key}), ago(h.Since))
		}))
}

func (v auditView) html(c *Console) look.HTML {
	list := look.Format(`<div id="entries" data-live>{}</div>`, c.entryTable(v.Items))
	switch {
	case !v.Kept:
		list = `<p class="empty">This store keeps no audit log.</p>`
	case len(v.Items) == 0:
		list = `<p class="empty">Nobody has done anything yet.</p>`
	}
	return look.Format(`<h1>Audit log</h1><p class="lead">What people did to keys, the latest first.</p>
{}`, list)
}

func (c *Console) entryTable(items []entryView) look.HTML {
	return table("Operations", columns("When", "Who", "What", "Key", "State", "Why"), look.Each(items, func(e entryView) look.HTML {
		return look.Format("<tr>{}<td>{}</td><td>{}</td><td>{}</td><td>{} → {}</td><td>{}</td></tr>\n",
			since(e.At), short(e.By), e.What, c.keyLink(e.Key), e.From, e.To, text(e.Reason))
	}))
}

func (v keyView) html(c *Console) look.HTML {
	lease, kept, dead := look.HTML(""), look.HTML(""), look.HTML("")
	if !v.LeaseUntil.IsZero() {
		lease = look.Format(`<div><dt>Lease until</dt><dd title="{}">{}</dd></div>`, stamp(v.LeaseUntil), ago(v.LeaseUntil))
	}
	if !v.RetainUntil.IsZero() {
		kept = look.Format(`<div><dt>Kept until</dt><dd title="{}">{}</dd></div>`, ago(v.RetainUntil), stamp(v.RetainUntil))
	}
	if v.DeadLetter != "" {
		dead = fact("Dead letter", look.Format(`<a href="{}"><code>{}</code></a>`, c.deadLetterURL(v.DeadLetter), short(v.DeadLetter)))
	}
	return look.Format(`{}
<h1><code>{}</code> <span class="tag {}">{}</span></h1>
<p class="lead">{}</p>
{}
<ol class="timeline">{}</ol>
{}
<dl class="facts">
{}
</dl>
{}{}`, look.If(v.Done != "", look.Format(`<div class="state good" role="status"><p>{}</p></div>`, text(v.Done))), text(v.Key), v.Color(), v.State, text(v.Verdict),
		look.If(v.Advice != "", look.Format(`<p><b>To do:</b> {}</p>`, text(v.Advice))), look.Each(v.Sentences, sentence),
		look.If(v.DuplicatesNote != "", look.Format(`<p class="quiet">Duplicates: {} ({})</p>`, v.Duplicates, text(v.DuplicatesNote))),
		fact("Consumer", code(v.Consumer))+look.If(v.Tenant != "", fact("Tenant", code(v.Tenant)))+fact("Attempt", v.Attempt)+fact("Token", v.Token)+
			fact("Generation", v.Generation)+lease+kept+fact("Result", strconv.Itoa(v.Result)+" bytes")+dead,
		look.If(c.cfg.Operate && len(v.Can) > 0, v.form(c)),
		look.If(len(v.Commands) > 0, look.Format(`<h2>On the command line</h2><pre tabindex="0">{}</pre>`,
			look.Each(v.Commands, func(s string) look.HTML { return look.Format("{}\n", text(s)) }))))
}

// buttons are the operations on a key, by the name that the form sends.
var buttons = map[string]look.HTML{
	"completed": `<button name="as" value="completed">It happened</button>`,
	"retry":     `<button name="as" value="retry">It did not: run it again</button>`,
	"failed":    `<button name="as" value="failed" class="harm">Give it up</button>`,
	"reopen":    `<button name="as" value="reopen" class="harm">Run it again at its next delivery</button>`,
	"release":   `<button name="as" value="release" class="harm">End the claim of its worker</button>`,
}

// form is what an operator may do to the key, as it is on the page.
func (v keyView) form(c *Console) look.HTML {
	title, result := "Change this key", look.HTML("")
	if v.State == driver.Uncertain.String() {
		title = "Did the effect happen? Look at the downstream first"
		result = `<div class="row"><label for="result">Result for duplicates, if it happened</label><input id="result" name="result" autocomplete="off"></div>`
	}
	return look.Format(`<form method="post" action="{}">
{}
<fieldset><legend>{}</legend>
{}
<div class="row">{}
{}</div></fieldset></form>
`, c.url("/key"), hidden("k", v.Key)+hidden("tenant", v.Tenant)+hidden("token", v.Token)+hidden("generation", v.Generation), title, result, reason("key"),
		look.Each(v.Can, func(name string) look.HTML { return buttons[name] }))
}

func sentence(s ops.Sentence) look.HTML {
	return look.Format(`<li{}><time datetime="{}">{}</time>{}{}</li>
`, look.If(s.Doubt, ` class="doubt"`), s.At.Format("2006-01-02T15:04:05.000Z07:00"), s.At.Format("2006-01-02 15:04:05.000"), text(s.Text),
		look.If(s.Doubt, ` <span class="tag warn">doubt</span>`))
}
