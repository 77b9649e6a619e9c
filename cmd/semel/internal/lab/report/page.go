package report

import "github.com/semel-dev/semel/internal/look"

// html is the whole file.
func (p *page) html() look.HTML {
	first, name, index, after := p.Scenarios[0], p.Scenarios[0].Name, look.HTML(""), look.HTML("")
	if p.Many {
		name, index = "lab", p.index()
	} else {
		after = look.Format("<section class=\"wrap\">{}</section>\n", p.json("The verdict as JSON"))
	}
	return look.Format(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<title>semel {}</title>
<style>{}</style>
</head>
<body>
<svg width="0" height="0" class="sr" aria-hidden="true"><defs>
<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatchback" width="5" height="5"/><rect class="hatchline" width="2" height="5"/></pattern>
<pattern id="ice" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><rect class="iceline" width="2" height="7"/></pattern>
</defs></svg>
<a class="jump" href="#main">Skip to the content</a>
<header class="top wrap">
  <p class="brand"><span class="mark" aria-hidden="true"></span>semel <span class="quiet">{}</span></p>
  <p class="quiet made">{}<span class="seed"> · seed {}</span></p>
  <button id="theme" type="button" aria-label="Switch between light and dark" hidden>◐</button>
</header>

<main id="main">
{}{}{}</main>

<div id="tip" role="status" hidden></div>
<div id="chip" hidden><span></span><button type="button">Clear</button></div>
<script>{}</script>
</body>
</html>
`, p.Title, p.CSS, name, p.Made, first.Timeline.Seed, index, look.Each(p.Scenarios, (*scenarioView).html), after, p.JS)
}

func (p *page) json(title string) look.HTML {
	return look.Format(`<details class="json"><summary>{}</summary><pre tabindex="0"><code>{}</code></pre></details>`, title, p.JSON)
}

// verdictPill says whether what was run came out as expected.
func verdictPill(ok bool) look.HTML {
	if ok {
		return `<p class="pill good">As expected</p>`
	}
	return `<p class="pill bad">Not as expected</p>`
}

// index is the page that leads to all scenarios.
func (p *page) index() look.HTML {
	return look.Format(`<article id="index" class="scenario">
<section class="hero wrap">
  {}
  <h1 tabindex="-1">{}</h1>
  <p class="lead">{}</p>
  <table class="index">
    <caption class="sr">The scenarios</caption>
    <thead><tr><th scope="col">Scenario and question</th>{}</tr></thead>
    <tbody>{}</tbody>
  </table>
</section>
<section class="wrap">
  <h2>Run all of it again</h2>
  <pre tabindex="0"><code>{}</code></pre>
  {}
</section>
</article>
`, verdictPill(p.OK), p.Headline, p.Lead, look.Each(p.Scenarios[0].Views, (*runView).column), look.Each(p.Scenarios, (*scenarioView).row),
		p.Repeat, p.json("The verdicts as JSON"))
}

func (v *runView) column() look.HTML { return look.Format(`<th scope="col">{}</th>`, v.Name) }

// row is the scenario in the index.
func (sc *scenarioView) row() look.HTML {
	return look.Format(`
    <tr{}>
      <th scope="row"><a href="#{}">{}</a>{}<span class="quiet">{}</span></th>
      {}
    </tr>`, look.If(!sc.OK(), ` class="unexpected"`), sc.Name, sc.Name, look.If(!sc.OK(), ` <span class="tag bad">not as expected</span>`), sc.Timeline.Scenario.Asks,
		look.Each(sc.Views, func(v *runView) look.HTML {
			return look.Format(`<td class="{}"><span class="who">{}</span><span class="tag">{}</span><span class="quiet">{}</span></td>`, v.Run.Verdict, v.Name, v.Run.Verdict, harm(v.Run))
		}))
}
