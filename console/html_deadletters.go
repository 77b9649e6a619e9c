package console

import (
	"cmp"
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

func (v overviewView) html(c visit) look.HTML {
	mark := map[string]string{"good": "✔", "warn": "◐", "bad": "✖"}[v.Level]
	item := func(s string) look.HTML { return look.Format(`<li>{}</li>`, text(s)) }
	more, tiles := look.HTML(""), look.HTML("")
	if len(v.Next) > 0 {
		more = look.Format(`<ul>{}</ul>`, look.Each(v.Next, item))
	}
	if len(v.Unknown) > 1 {
		more += look.Format(`<p>Also not known:</p><ul>{}</ul>`, look.Each(v.Unknown[1:], item))
	}
	if s := v.Stats; s != nil {
		oldest := "–"
		if s.Oldest > 0 {
			oldest = driver.DurationText(s.Oldest.Truncate(time.Second))
		}
		count := func(n int64) string { return words.AtLeast(n, s.AtLeast) }
		tiles = look.Format(`<section class="tile"><h2>Queue</h2><p class="big">{} ready</p><p>{} in flight, {} delayed{}</p></section>
<section class="tile"><h2>Oldest message</h2><p class="big">{}</p><p>since it was sent</p></section>`,
			count(s.Visible), count(s.InFlight), count(s.Delayed), look.If(s.Approximate, ", about"), oldest)
	}
	lists := look.HTML("")
	if len(v.Uncertain) > 0 {
		lists = "<h2>Keys whose outcome is unknown</h2>" + table("Keys whose outcome is unknown", columns("Key", "Since", "Why"),
			look.Each(v.Uncertain, func(k caseView) look.HTML {
				return look.Format("<tr><td>{}</td>{}<td>{}</td></tr>\n", c.keyLink(k.keyRef), since(k.Since), text(k.Reason))
			}))
	}
	if len(v.DeadLetters.Groups) > 0 {
		lists += "<h2>Dead letters</h2>" + c.groupTable(v.DeadLetters.Groups)
	}
	if len(v.Operations) > 0 {
		lists += "<h2>Done lately</h2>" + c.entryTable(v.Operations)
	}
	return look.Format(`<div id="overview" data-live>
<div class="state {}">
<h1>{} {}</h1>
{}
</div>
<div class="tiles">
{}
<section class="tile"><h2>Dead letters</h2><p class="big"><a href="{}">{}</a></p><p>messages that need a person</p></section>
</div>
{}
</div>`, v.Level, mark, text(v.Headline), more, tiles, c.url("/dead-letters"),
		words.AtLeast(int64(v.DeadLetters.Total), v.DeadLetters.More), lists)
}

func (c *Console) groupTable(groups []driver.DeadLetterGroup) look.HTML {
	return table("Groups of dead letters", `<th scope="col">Kind</th><th scope="col" class="num">How many</th>`+columns("Reason", "From", "To"),
		look.Each(groups, func(g driver.DeadLetterGroup) look.HTML {
			to := "/dead-letters?" + url.Values{"kind": {string(g.Kind)}, "group": {g.Class}}.Encode()
			return look.Format("<tr><td>{}</td><td class=\"num\">{}</td><td><a href=\"{}\">{}</a></td>{}{}</tr>\n",
				kindTag(g.Kind), g.Count, c.url(to), text(cmp.Or(g.Class, "no reason given")), since(g.From), since(g.To))
		}))
}

func kindTag(kind driver.DeadLetterKind) look.HTML {
	color := "bad"
	if kind == driver.DeadLetterUncertain {
		color = "warn"
	}
	return look.Format(`<span class="tag {}">{}</span>`, color, kind)
}

func (v deadLettersView) html(c visit) look.HTML {
	title := "Dead letters"
	if v.Kind != "" {
		title += ": " + string(v.Kind)
	}
	page := look.Format("<h1>{}</h1>\n{}\n", title,
		look.If(v.Group != "", look.Format(`<p class="lead">{} · <a href="{}">all</a></p>`, text(v.Group), c.url("/dead-letters"))))
	if len(v.Items) == 0 {
		return page + `<p class="empty">There are none.</p>`
	}
	check, form := look.HTML(""), look.HTML("")
	if c.operates {
		check, form = `<td class="check"><input type="checkbox" data-all aria-label="Select all" hidden></td>`, v.form(c)
	}
	head := check + columns("Key", "Kind") + `<th scope="col" class="num">Attempts</th>` + columns("Died", "Reason")
	return page + look.Format(`<form method="post" action="{}">
{}
{}{}</form>`, c.url("/plan"), table("Dead letters, oldest first", head, look.Each(v.Items, c.deadLetterRow)),
		look.If(v.More, `<p class="quiet">The list ends after 1,000: redrive or discard these first.</p>`), form)
}

func (c visit) deadLetterRow(l deadLetterItem) look.HTML {
	check := look.HTML("")
	if c.operates {
		check = look.Format(`<td class="check"><input type="checkbox" name="id" value="{}" aria-label="Select the dead letter of {}"></td>`, l.ID, short(l.Raw))
	}
	return look.Format("<tr>{}<td>{}</td><td>{}</td><td class=\"num\">{}</td>{}<td><a href=\"{}\">{}</a></td></tr>\n",
		check, c.keyLink(l.keyRef), kindTag(l.Kind), l.Attempts, since(l.DeadAt), c.deadLetterURL(l.ID), short(cmp.Or(l.Reason, "no reason given")))
}

// form is what an operator may do to the dead letters of a list.
func (v deadLettersView) form(c visit) look.HTML {
	which := "The selected dead letters"
	if v.Group != "" || v.Kind != "" {
		which += ", or all of this group"
	}
	return look.Format(`
{}{}
<fieldset><legend>{}</legend>
<div class="row"><label for="mode">A key whose effect may have happened</label><select id="mode" name="mode"><option value="skip">runs again with the same effect key, after the probe if there is one</option><option value="verify">stays, unless a worker asks the probe first</option><option value="rerun">runs again: its effect did not happen</option></select>
<button class="go">Plan the redrive</button></div>
</fieldset>
<fieldset><legend>Delete them for good</legend><div class="row"><label for="reason-discard">Reason</label><input id="reason-discard" name="reason" maxlength="500" placeholder="why, for the audit log" autocomplete="off"><button class="harm" formaction="{}">Discard</button></div></fieldset>
`, look.If(v.Group != "", hidden("group", v.Group)), look.If(v.Kind != "", hidden("kind", v.Kind)), which, c.url("/discard"))
}

func (v deadLetterView) html(c visit) look.HTML {
	headers, body, form := look.HTML(""), look.Format(`<pre tabindex="0">{}</pre>`, v.Body), look.HTML("")
	if len(v.Headers) > 0 {
		headers = look.Format(`<h2>Headers</h2><dl class="facts">{}</dl>`, look.Each(slices.Sorted(maps.Keys(v.Headers)),
			func(name string) look.HTML { return fact(text(name), code(v.Headers[name])) }))
	}
	if v.Hidden != "" {
		body = look.Format(`<p class="empty">{}</p>`, v.Hidden)
	}
	if c.operates {
		form = look.Format(`<form method="post" action="{}">{}<div class="row"><button class="go">Plan the redrive</button></div></form>`, c.url("/plan"), hidden("id", v.ID))
	}
	return look.Format(`<h1>Dead letter <code>{}</code></h1>
<p class="lead">{}</p>
<dl class="facts">
{}
</dl>
{}
<h2>Body</h2>
{}
{}{}`, short(v.ID), text(cmp.Or(v.Reason, "no reason given")), fact("Key", c.keyLink(v.keyRef))+fact("Kind", v.Kind)+fact("Attempts", v.Attempts)+fact("Message", code(v.MessageID))+
		fact("First received", stamp(v.FirstReceived))+fact("Died", stamp(v.DeadAt))+fact("Body", strconv.Itoa(v.Size)+" bytes"), headers, body, form, commandLines(v.Commands))
}

// results lists dead letters that an operation leaves alone.
func results(t tally) look.HTML {
	return look.If(t.Refused > 0, look.Format(`<h2>Left alone: {}</h2><ul>{}</ul>`, t.Refused, look.Each(t.Examples, func(r ops.Result) look.HTML {
		return look.Format(`<li><code>{}</code>: {}</li>`, short(r.Key), text(r.Why))
	})))
}

func (v discardedView) html(c visit) look.HTML {
	level := "good"
	if v.Refused > 0 {
		level = "warn"
	}
	return look.Format(`<div class="state {}"><h1>{} discarded</h1>
{}<p><a href="{}">Dead letters</a></p></div>`, level, words.Count(v.Discarded, "dead letter"), results(v.tally), c.url("/dead-letters"))
}

func (v planView) html(c visit) look.HTML {
	row := func(n int, outcome, means string) look.HTML {
		return look.If(n > 0, look.Format(`<tr><td class="num">{}</td><th scope="row">{}</th><td>{}</td></tr>`, n, outcome, means))
	}
	return look.Format(`
<h1>Redrive {}</h1>
<p class="lead">Nothing has changed yet. As things are now:</p>
<div class="scroll"><table><tbody>{}</tbody></table></div>
{}
<form method="post" action="{}">
{}{}
<fieldset><legend>Carefully</legend>
<div class="row"><label for="canary">First</label><input id="canary" name="canary" type="number" min="0" max="1000" value="{}"> <label for="rate">and, when these are completed, the others, at most</label><input id="rate" name="rate" type="number" min="0" step="any" value="20"> <span>a second</span></div>
<div class="row">{}<button class="go">Redrive {}</button></div>
</fieldset>
</form>
`, words.Count(v.Total, "dead letter"), row(v.Redriven, "redriven", "will be sent again, with the same effect keys")+
		row(v.Dropped, "dropped", "their keys are completed by now, or their records went on without them: nothing is sent")+
		row(v.Refused, "refused", "stay as they are"), results(v.tally), c.url("/redrives"), hidden("mode", v.Mode),
		look.Each(v.IDs, func(id string) look.HTML { return hidden("id", id) }), v.Canary, reason("redrive"), v.Total)
}

func (v run) html(c visit) look.HTML {
	at := c.url("/redrives/" + url.PathEscape(v.ID))
	level, head, unchanged, bar := "warn", look.HTML("◐ Under way"), look.HTML(""), look.HTML("")
	switch {
	case v.Stopped != "":
		level, head, unchanged, bar = "bad", look.Format("✖ Stopped: {}", text(v.Stopped)), ". The others are unchanged", " short"
	case !v.Ended.IsZero():
		level, head = "good", "✔ Ended"
	}
	return look.Format(`<div id="redrive" data-live data-at="{}">
<div class="state {}">
<h1>{}</h1>
<p>{} of {}: {} sent again, {} dropped, {} left alone{}.</p>
</div>
<div class="bar{}" role="progressbar" aria-label="Dead letters done" aria-valuemin="0" aria-valuemax="{}" aria-valuenow="{}"><svg width="100%" height="14" aria-hidden="true"><rect class="done" width="{}%" height="14"/></svg></div>
<dl class="facts">{}</dl>
{}
{}
<p><a href="{}">This redrive</a> · <a href="{}">Dead letters</a></p>
</div>`, at, level, head, v.Done, words.Count(v.Total, "dead letter"), v.Redriven, v.Dropped, v.Refused, unchanged,
		bar, v.Total, v.Done, 100*v.Done/max(v.Total, 1), fact("Began", stamp(v.Began))+fact("Canary", v.Canary)+fact("Mode", v.Mode)+fact("Reason", text(v.Reason)),
		results(v.tally),
		look.If(c.operates && v.Ended.IsZero(), look.Format(`<form method="post" action="{}/stop"><div class="row"><button class="harm">Stop</button></div></form>`, at)),
		at, c.url("/dead-letters"))
}
