package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/internal/look"
	"github.com/semel-dev/semel/internal/words"
)

// maxOpen is how many keys are listed before the button that shows all.
const maxOpen = 12

// html is the scenario's part of the page.
func (sc *scenarioView) html() look.HTML {
	return look.Format("\n"+`<article id="{}" class="scenario">`, sc.Name) + sc.hero() + sc.log() + sc.deliveries() + sc.timelines() + sc.strikes() + sc.orders() +
		sc.advice() + look.Format(`
<section class="wrap">
  <h2>Settings</h2>
  <dl class="settings">{}</dl>
  <p>Run the same schedule again:</p>
  <pre tabindex="0"><code>{}</code></pre>
</section>
</article>
`, sc.settings(), sc.Timeline.Repeat)
}

// hero is what a reader sees first: the verdict, a card for each run, and the figures.
func (sc *scenarioView) hero() look.HTML {
	crumbs, asks, missed := look.HTML(""), look.HTML(""), look.HTML("")
	if sc.Many {
		crumbs = look.Format(`<nav class="crumbs" aria-label="Scenarios"><a href="#index">All scenarios</a>{}{}</nav>`,
			look.If(sc.Before != "", look.Format(`<a href="#{}" rel="prev">← {}</a>`, sc.Before, sc.Before)),
			look.If(sc.After != "", look.Format(`<a href="#{}" rel="next">{} →</a>`, sc.After, sc.After)))
	}
	if sc.Timeline.Scenario.Asks != "" {
		asks = look.Format(`<p class="asks">“{}”</p>`, sc.Timeline.Scenario.Asks)
	}
	for _, r := range sc.Runs {
		missed += look.Each(r.Missed, func(m string) look.HTML {
			return look.Format(`<p class="missed bad">Not as expected, guard {}: {}.</p>`, r.Guard, m)
		})
	}
	return look.Format(`
<section class="hero wrap">
  {}{}
  <h1 tabindex="-1">{}</h1>
  {}
  <p class="lead">{}</p>

  <div class="cards">{}</div>

  <table class="figures">
    <caption class="sr">The runs side by side</caption>
    <thead><tr><td></td>{}</tr></thead>
    <tbody>{}</tbody>
  </table>
  {}
  <p class="note quiet">The charges are counted in a ledger that the handlers write and that has no unique constraint on the order; it is read back and compared with the list of what was sent. semel's own records have no say in the verdict.</p>
</section>
`, crumbs, verdictPill(sc.OK()), sc.Headline, asks, sc.Lead, look.Each(sc.Views, (*runView).card), look.Each(sc.Views, (*runView).column),
		look.Each(figures(sc.Runs), figureRow.html), missed)
}

func (v *runView) card() look.HTML {
	return look.Format(`
    <div class="card {}">
      <h2>{} <span class="tag">{}</span></h2>
      <p class="big">{}</p>
      <p class="quiet">{}</p>
      {}
    </div>`, v.Run.Verdict, v.Name, v.Run.Verdict, v.Big, v.What,
		look.If(v.Run.Design != "", look.Format(`<p class="says"><code>{}</code> {}</p>`, v.Run.Design, v.Run.Design.Sentence())))
}

func (r figureRow) html() look.HTML {
	return look.Format("\n"+`      <tr class="{}{}"><th scope="row">{}</th>{}</tr>`, look.If(r.Strong, "strong"), look.If(r.Rule, " rule"), r.Label,
		look.Each(r.Cells, func(c cell) look.HTML { return look.Format(`<td class="{}">{}</td>`, c.Tone, c.Text) }))
}

// log is what the workers log.
func (sc *scenarioView) log() look.HTML {
	if !slices.ContainsFunc(sc.Views, func(v *runView) bool { return len(v.Transcript) > 0 }) {
		return ""
	}
	return look.Format(`
<section class="wrap">
  <h2>What the workers log</h2>
  <p class="quiet hint">Every line is an event of this run, {}.</p>
  <div class="two logs">{}</div>
</section>
`, faster(sc.Timeline.Scenario), look.Each(sc.Views, func(v *runView) look.HTML {
		lines := look.HTML("")
		for _, l := range v.Transcript {
			lines += look.Format(`<li><time>{}</time><span>{}</span></li>`, fmt.Sprintf("%.1f", l.Seconds), l.Text)
		}
		return look.Format("\n"+`  <div><h3>{}</h3><ol class="log">{}</ol>{}</div>`, v.Name, lines, look.If(v.Refused > 0, look.Format(`<p class="quiet note">{}</p>`, refusedText(v.Refused))))
	}))
}

// fates are what can become of a delivery, in their order.
var fates = []struct {
	fate  verdict.Fate
	label string
}{
	{verdict.Charged, "charged"}, {verdict.Doubled, "charged again"}, {verdict.Skipped, "skipped: known already"},
	{verdict.Deferred, "put back: at work elsewhere"}, {verdict.Cut, "cut off by a kill"},
	{verdict.Other, "without effect: returned, too late, or put aside"},
}

// deliveries is what became of them, as a bar for each run.
func (sc *scenarioView) deliveries() look.HTML {
	return look.Format(`
<section class="wrap">
  <h2>What became of each delivery</h2>
  {}
</section>
`, look.Each(sc.Views, func(v *runView) look.HTML {
		var text, parts, list look.HTML
		for _, f := range fates {
			n, label := v.Flow[f.fate], f.label
			if v.Run.Regressed > 0 { // versions are applied
				label = map[verdict.Fate]string{verdict.Charged: "applied", verdict.Doubled: "applied over a newer version"}[f.fate]
				label = cmp.Or(label, f.label)
			}
			if n > 0 {
				text += look.Format(`{} {}; `, n, label)
				parts += look.Format(`<span class="{}" style="flex-grow:{}" title="{} {}"></span>`, f.fate, n, n, label)
				list += look.Format(`<li><i class="{}"></i><b>{}</b> {}</li>`, f.fate, n, label)
			}
		}
		return look.Format(`
  <div class="flow">
    <p class="flowname">{} <span class="quiet">{}</span></p>
    <div class="stack" role="img" aria-label="{}">{}</div>
    <ul class="keys">{}</ul>
  </div>`, v.Name, words.Count(v.Run.Delivered, "delivery", "deliveries"), text, parts, list)
	}))
}

// timelines are the charts of all runs, with their legend.
func (sc *scenarioView) timelines() look.HTML {
	return look.Format(`
<section class="wide">
  <div class="wrap">
    <h2>Timeline</h2>
    <p class="quiet hint">One lane per worker{}. Both runs have the same scale. Point at a delivery or tap it for its details; a click follows its order through both runs.</p>
    <ul class="legend">
      <li><svg width="26" height="12" aria-hidden="true"><rect class="win" x="0" y="2" width="26" height="8" rx="2"/><rect class="run charge" x="6" y="2.5" width="14" height="7" rx="1.5"/></svg>visibility window, handler inside</li>
      <li><svg width="14" height="12" aria-hidden="true"><rect class="run double" x="0" y="2.5" width="14" height="7" rx="1.5"/></svg>charged again</li>
      {}
    </ul>
  </div>
  <div class="wrap timelines{}">{}</div>
</section>
`, look.If(sc.anyProcess(func(p *verdict.Process) bool { return p.Killed }), "; a killed worker is started again as a new process"), sc.legend(), look.If(len(sc.Views) > 1, " pair"),
		look.Each(sc.Views, (*runView).timeline))
}

// anyProcess reports whether something is true of a process in the charts, anyBar of a delivery.
func (sc *scenarioView) anyProcess(is func(*verdict.Process) bool) bool {
	return slices.ContainsFunc(sc.Views, func(v *runView) bool {
		return slices.ContainsFunc(v.Lanes, func(l *verdict.Lane) bool { return slices.ContainsFunc(l.Processes, is) })
	})
}

func (sc *scenarioView) anyBar(is func(bar) bool) bool {
	return slices.ContainsFunc(sc.Views, func(v *runView) bool { return slices.ContainsFunc(v.Chart.bars, is) })
}

// legend explains the marks that are in the charts.
func (sc *scenarioView) legend() look.HTML {
	return look.If(sc.anyBar(bar.over), `<li><svg width="18" height="12" aria-hidden="true"><rect class="over" x="0" y="2" width="18" height="8"/></svg>past its visibility</li>`) +
		look.If(sc.anyBar(func(b bar) bool { return b.Fate() == verdict.Skipped }), `<li><svg width="12" height="12" aria-hidden="true"><path class="mk-skip" d="M6 1.5 10.5 6 6 10.5 1.5 6Z"/></svg>duplicate skipped</li>`) +
		look.If(sc.anyBar(func(b bar) bool { return b.Fate() == verdict.Deferred }), `<li><svg width="12" height="12" aria-hidden="true"><circle class="mk-defer" cx="6" cy="6" r="3.4"/></svg>put back: at work elsewhere</li>`) +
		look.If(sc.anyBar(func(b bar) bool { return len(b.Beats) > 0 }), `<li><svg width="12" height="12" aria-hidden="true"><path class="beat" d="M3 1v10M9 1v10"/></svg>heartbeat</li>`) +
		look.If(sc.anyProcess(func(p *verdict.Process) bool { return p.Killed }), `<li><svg width="14" height="12" aria-hidden="true"><rect class="run cut" x="0.5" y="2.5" width="13" height="7" rx="1.5"/></svg>cut off by a kill</li>
      <li><svg width="12" height="12" aria-hidden="true"><path class="mk-kill" d="M2 2l8 8M10 2l-8 8"/></svg>SIGKILL</li>`) +
		look.If(sc.anyProcess(func(p *verdict.Process) bool { return len(p.Frozen) > 0 }), `<li class="stop"><svg width="22" height="12" aria-hidden="true"><rect x="0" y="1" width="22" height="10"/></svg>frozen (SIGSTOP)</li>`) +
		look.If(sc.anyProcess(func(p *verdict.Process) bool { return p.Asked > 0 }), `<li class="deploy"><svg width="12" height="12" aria-hidden="true"><circle cx="6" cy="6" r="5.5"/></svg>replaced by a deployment</li>`) +
		look.If(slices.ContainsFunc(sc.Views, func(v *runView) bool { return len(v.Outages) > 0 }), `<li class="outage"><svg width="22" height="12" aria-hidden="true"><rect x="0" y="1" width="22" height="10"/></svg>database out of reach</li>`)
}

func (v *runView) timeline() look.HTML {
	left := look.HTML("")
	if n := v.Chart.leftOut; n > 0 {
		left = look.Format(`<p class="quiet note">{} left out of the picture{}.</p>`, words.Count(n, "plain delivery is", "plain deliveries are"),
			look.If(v.Chart.moreLeftOut > 0, look.Format(`, and {} others`, v.Chart.moreLeftOut)))
	}
	return look.Format(`
  <figure class="tl {}" data-end="{}">
    <figcaption>
      <h3>{}</h3>
      <span class="tag">{}</span>
      <span class="tools" hidden><button type="button" data-zoom="out" aria-label="Zoom out of {}">−</button><button type="button" data-zoom="in" aria-label="Zoom into {}">+</button><button type="button" data-zoom="fit" aria-label="Fit {} into the window">Fit</button></span>
    </figcaption>
    <div class="frame">
      <div class="lanes" aria-hidden="true" style="height:{}px">{}</div>
      <div class="scroll" tabindex="0" role="group" aria-label="Timeline of the run with the {}">
        {}
      </div>
    </div>
    {}
  </figure>`, v.Run.Verdict, v.Chart.end, v.Name, v.Run.Verdict, v.Name, v.Name, v.Name, v.Chart.height, v.Chart.laneNames(), v.Name, v.Chart.html(), left)
}

// strikes lists what struck the runs.
func (sc *scenarioView) strikes() look.HTML {
	any, columns := false, look.HTML("")
	for _, v := range sc.Views {
		struck, list := struckOf(v.RunTimeline), look.HTML(`<p class="quiet">Nothing.</p>`)
		if any = any || len(struck) > 0; len(struck) > 0 {
			list = look.Format(`<table class="list">
        <thead><tr><th scope="col" class="num">at</th><th scope="col">worker</th><th scope="col">what</th><th scope="col">then</th></tr></thead>
        <tbody>{}</tbody>
      </table>`, look.Each(struck, struckView.html))
		}
		columns += look.Format(`
    <div>
      <h3>{} <span class="quiet">{}</span></h3>
      {}
    </div>`, v.Name, len(struck), list)
	}
	return look.If(any, look.Format(`
<section class="wrap">
  <h2>What struck them</h2>
  <div class="two">{}</div>
</section>
`, columns))
}

func (s struckView) html() look.HTML {
	worker := look.HTML(`<span class="quiet">all</span>`)
	if s.Worker != 0 {
		worker = look.Format(`{} <span class="quiet">pid {}</span>`, s.Worker, s.PID)
	}
	return look.Format(`
        <tr><td class="num">{}</td><td>{}</td><td>{}{}</td><td><span class="{}">{}</span></td></tr>`, verdict.Seconds(s.AtMS), worker, s.What,
		look.If(s.Key != "", look.Format(`<br><button class="order" type="button" data-key="{}">{}</button>`, s.Key, s.Key)), cmp.Or(s.Tone, "quiet"), s.Then)
}

// orders are the keys that something happened to.
func (sc *scenarioView) orders() look.HTML {
	if len(sc.Keys) == 0 {
		return ""
	}
	list := look.HTML("")
	for i, k := range sc.Keys {
		list += k.html(sc, i)
	}
	return look.Format(`
<section class="wrap">
  <h2>What happened to whom, step by step</h2>
  {}
  <div class="orders">{}</div>
  {}{}
</section>
`, sc.damage(), list,
		look.If(len(sc.Keys) > maxOpen, look.Format(`<p class="show"><button class="all" type="button" hidden>Show all {}</button></p>`, len(sc.Keys))),
		look.If(sc.KeysLeftOut > 0, look.Format(`<p class="quiet note">{} more are not shown here.</p>`, sc.KeysLeftOut)))
}

// damage sums up the second charges by cause, a column for each run.
func (sc *scenarioView) damage() look.HTML {
	rows := look.HTML("")
	for _, cause := range verdict.AllCauses {
		cells, any := look.HTML(""), false
		for _, v := range sc.Views {
			keys, extra := 0, 0
			for _, d := range v.Doubles {
				if d.Cause == cause {
					keys, extra = keys+1, extra+d.Charges-1
				}
			}
			if any = any || keys > 0; keys == 0 {
				cells += `<td><span class="quiet">none</span></td>`
				continue
			}
			cells += look.Format(`<td>{}<span class="bad">+{}</span></td>`, words.Count(keys, "order", "orders"),
				Money(int64(extra)*sc.Timeline.Scenario.Load.Amount, v.Run.Currency))
		}
		rows += look.If(any, look.Format(`<tr><th scope="row">{}</th>{}</tr>`, causeTexts[cause], cells))
	}
	return look.If(rows != "", look.Format(`<table class="figures damage">
    <caption class="sr">Second charges by cause</caption>
    <thead><tr><th scope="col" class="cause">Charged more than once, by cause</th>{}</tr></thead>
    <tbody>{}</tbody>
  </table>`, look.Each(sc.Views, (*runView).column), rows))
}

func (k keyView) html(sc *scenarioView, nr int) look.HTML {
	steps := func(title string, run *runView, lines []verdict.Line) look.HTML {
		if run == nil {
			return ""
		}
		return look.Format(`<div><h4>{}</h4><ol>{}</ol></div>`, title, look.Each(lines, func(l verdict.Line) look.HTML {
			return look.Format(`<li class="{}"><time>{}</time>{}</li>`, l.Tone, fmt.Sprintf("%.3f", l.Seconds()), l.Text)
		}))
	}
	return look.Format(`
    <details{}{}>
      <summary><code>{}</code> <b class="bad">{}</b> <span class="why">{}</span>{}</summary>
      <div class="two timeline">{}{}</div>
      <p class="show"><button class="order" type="button" data-key="{}">Show in the timelines</button></p>
    </details>`, look.If(nr == 0, " open"), look.If(nr >= maxOpen, ` class="more"`), k.Key, k.Fate, k.Why,
		look.If(k.Damage != "", look.Format(` <span class="amount bad">{}</span>`, k.Damage)),
		steps("Guard off", sc.Off, k.Off), steps("Guard on", sc.On, k.On), k.Key)
}

// advice is what the guard does, for readers of the demo, and what to set or build, for those of a scenario.
func (sc *scenarioView) advice() look.HTML {
	switch {
	case sc.Demo:
		return `
<section class="wrap prose">
  <h2>What the guard does</h2>
  <ol>
    <li><b>Claim first.</b> Before the handler runs, the worker claims the order's key in the store, under a lease. A duplicate that finds the key at work is put back, never acked; one that finds it done is acked and skipped.</li>
    <li><b>One write.</b> The handler hands over its charge as SQL. Charge, record and ack commit in one transaction, guarded by the claim's token and nonce. A kill before it leaves nothing behind; a kill after it leaves everything.</li>
    <li><b>Take over.</b> A killed worker's lease ends by itself; the next delivery takes the order over and runs it. Heartbeats keep slow orders from being handed out meanwhile.</li>
    <li><b>Order, not message.</b> The key is the order, not the message id, so the producer's second copy is a duplicate too.</li>
  </ol>
  <p>The plain consumer receives, charges in its own transaction, and acks last. It loses nothing, and it doubles whatever comes twice.</p>
</section>
`
	case sc.Timeline.Scenario.Hint != "":
		return look.Format(`
<section class="wrap">
  <h2>What to set or build</h2>
  <p class="hint">{}</p>
</section>
`, sc.Timeline.Scenario.Hint)
	}
	return ""
}
