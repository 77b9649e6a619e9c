package console

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/look"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// view is the content of a page, which is also its JSON.
type view interface{ html(c visit) look.HTML }

// tabs are the pages that the head of each page leads to.
var tabs = [][2]string{
	{"overview", "/"}, {"deadletters", "/dead-letters"}, {"workers", "/workers"}, {"guarantee", "/guarantee"}, {"auditlog", "/audit-log"},
}

var titles = map[string]string{
	"overview": "Overview", "deadletters": "Dead letters", "deadletter": "Dead letter", "auditlog": "Audit log", "key": "Key", "workers": "Workers",
	"guarantee": "Guarantee", "plan": "Redrive", "redrive": "Redrive", "discarded": "Discarded", "error": "Error",
}

// visit is the console for one request.
type visit struct {
	*Console
	operates bool // who sent it may operate
}

// frame is a page with what is around its content.
func (c visit) frame(name string, v view) look.HTML {
	nav, who := look.HTML(""), "read only"
	if c.operates {
		who = "operations allowed"
	}
	for _, t := range tabs {
		nav += look.Format("<li><a href=\"{}\"{}>{}</a></li>\n", c.url(t[1]), look.If(t[0] == name, ` aria-current="page"`), titles[t[0]])
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

// keyLink is a key that leads to its page. Keys of other consumers have none here.
func (c *Console) keyLink(k keyRef) look.HTML {
	if k.Raw == "" {
		return "no key"
	}
	name, q := look.Format(`<code>{}</code>`, short(k.Raw)), url.Values{"k": {k.Raw}}
	if k.Tenant != "" {
		q.Set("tenant", k.Tenant)
	}
	if k.Consumer == "" || k.Consumer == c.cfg.Consumer {
		name = look.Format(`<a href="{}">{}</a>`, c.url("/key?"+q.Encode()), name)
	}
	return name + look.If(k.Tenant != "", look.Format(` <span class="quiet">{}</span>`, short(k.Tenant)))
}

func (c *Console) deadLetterURL(id string) string {
	return c.url("/dead-letter?id=" + url.QueryEscape(id))
}

func (v errorView) html(visit) look.HTML {
	return look.Format(`<div class="state bad"><h1>{} {}</h1><p>{}</p></div>`, v.Status, http.StatusText(v.Status), text(v.Error))
}

func (v workersView) html(c visit) look.HTML {
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
		look.Each(w.Holds, func(h driver.WorkerHold) look.HTML {
			return look.Format(`{} <span class="quiet">{}</span><br>`, c.keyLink(keyRef{w.Consumer, h.Tenant, h.Key}), ago(h.Since))
		}))
}

func (v auditView) html(c visit) look.HTML {
	list := look.Format(`<div id="entries" data-live>{}</div>`, c.entryTable(v.Items))
	switch {
	case !v.Kept:
		list = `<p class="empty">This store keeps no audit log.</p>`
	case len(v.Items) == 0:
		list = `<p class="empty">Nobody has done anything yet.</p>`
	}
	return look.Format(`<h1>Audit log</h1><p class="lead">What people did to keys, and requests that were refused, the latest first.</p>
{}`, list)
}

func (c *Console) entryTable(items []entryView) look.HTML {
	return table("Operations", columns("When", "Who", "What", "Key", "State", "Why"), look.Each(items, func(e entryView) look.HTML {
		return look.Format("<tr>{}<td>{}</td><td>{}</td><td>{}</td><td>{} → {}</td><td>{}</td></tr>\n",
			since(e.At), short(e.By), e.What, c.keyLink(e.keyRef), e.From, e.To, text(e.Reason))
	}))
}

// stateColors are the classes of tags by state; others are plain.
var stateColors = map[string]string{driver.Completed.String(): "good", driver.Uncertain.String(): "warn", driver.FailedState.String(): "bad"}

func (v keyView) html(c visit) look.HTML {
	until := func(name string, t time.Time) look.HTML {
		return look.If(!t.IsZero(), fact(name, stamp(t)+", "+ago(t)))
	}
	dead := look.If(v.DeadLetter != "", fact("Dead letter", look.Format(`<a href="{}"><code>{}</code></a>`, c.deadLetterURL(v.DeadLetter), short(v.DeadLetter))))
	return look.Format(`{}
<h1><code>{}</code> <span class="tag {}">{}</span></h1>
<p class="lead">{}</p>
{}
<ol class="timeline">{}</ol>
{}
<dl class="facts">
{}
</dl>
{}{}`, look.If(v.Done != "", look.Format(`<div class="state good" role="status"><p>{}</p></div>`, text(v.Done))), text(v.Key), cmp.Or(stateColors[v.State], "plain"), v.State, text(v.Verdict),
		look.If(v.Advice != "", look.Format(`<p><b>To do:</b> {}</p>`, text(v.Advice))), look.Each(v.Sentences, sentence),
		look.If(v.DuplicatesNote != "", look.Format(`<p class="quiet">Duplicates: {} ({})</p>`, v.Duplicates, text(v.DuplicatesNote))),
		fact("Consumer", code(v.Consumer))+look.If(v.Tenant != "", fact("Tenant", code(v.Tenant)))+fact("Attempt", v.Attempt)+fact("Token", v.Token)+
			fact("Generation", v.Generation)+until("Lease until", v.LeaseUntil)+until("Kept until", v.RetainUntil)+fact("Result", strconv.Itoa(v.Result)+" bytes")+dead,
		look.If(c.operates && len(v.Can) > 0, v.form(c)), commandLines(v.Commands))
}

// commandLines are commands to paste.
func commandLines(all []string) look.HTML {
	return look.If(len(all) > 0, look.Format(`<h2>On the command line</h2><pre class="commands" tabindex="0">{}</pre>`,
		look.Each(all, func(s string) look.HTML { return look.Format("{}\n", text(s)) })))
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
func (v keyView) form(c visit) look.HTML {
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

// colors are the classes of levels.
var colors = map[string]string{ops.LevelOK: "good", ops.LevelWarning: "warn", ops.LevelDanger: "bad"}

func (v guaranteeView) html(c visit) look.HTML {
	lines := look.Each(v.Guarantees, func(g ops.Guaranteed) look.HTML {
		return look.Format("<blockquote><p>{}</p></blockquote>\n<p class=\"quiet\">{}</p>\n", text(g.Guarantee), text(strings.Join(g.Workers, ", ")))
	})
	checks := table("Checks", columns("Level", "Check", "Detail", "To do"), look.Each(v.Checks, func(k ops.Check) look.HTML {
		return look.Format("<tr><td><span class=\"tag {}\">{}</span></td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
			colors[k.Level], k.Level, k.Check, text(k.Detail), look.If(k.Try != "", code(k.Try)))
	}))
	return look.Format(`<div id="guarantee" data-live>
<div class="state {}"><h1>{}</h1></div>
<h2>What the workers guarantee</h2>
{}{}
<h2>Checks</h2>
{}
<p><a href="{}">Workers</a></p>
</div>`, colors[v.Level], text(v.Verdict), lines, look.If(len(v.Guarantees) == 0, `<p class="empty">No worker has reported its guarantee.</p>`),
		look.If(len(v.Checks) > 0, checks)+look.If(len(v.Checks) == 0, `<p class="empty">There is nothing to check.</p>`), c.url("/workers"))
}
