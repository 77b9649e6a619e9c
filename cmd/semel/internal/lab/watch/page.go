package watch

import (
	"net/http"

	"github.com/semel-dev/semel/internal/look"
)

func (v *Server) page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(v.html()))
}

// html is the page. Its script fills it.
func (v *Server) html() look.HTML {
	s, strikes, pair := v.scenario, "this run", look.HTML("")
	if len(v.board.sides) > 1 {
		strikes, pair = "both sides in the same moment", " pair"
	}
	asks := look.HTML("")
	if s.Asks != "" {
		asks = look.Format(`<p class="asks">“{}”</p>`, s.Asks)
	}
	return look.Format(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>semel live: {}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="watch.css">
<script src="watch.js" defer></script>
</head>
<body>
<header class="top wrap">
  <p class="brand"><span class="mark" aria-hidden="true"></span>semel <span class="quiet">live</span></p>
  <p id="state" class="pill" role="status">connecting…</p>
</header>
<main class="wrap">
  <h1>{}</h1>
  {}

  <section class="panel" aria-label="Disturb the run">
    <p class="quiet">What you do strikes {}.</p>
    <div class="row">
      <button type="button" data-do="drop-ack">Drop the next ack</button>
      <button type="button" data-do="duplicate">Send a duplicate</button>
      <button type="button" data-do="fail-heartbeats" data-lasts>Fail heartbeats</button>
      <button type="button" data-do="outage" data-lasts>Pause the store</button>
      <label class="for">for <input id="for" type="number" min="1" max="60" step="1" value="3" inputmode="numeric"> s</label>
    </div>
    <div class="row">
      {}
      <button type="button" data-do="finish" class="finish">Finish and judge</button>
    </div>
    <label class="for">Only this message or key: <input id="only" type="search" autocomplete="off" spellcheck="false"></label>
    <p id="said" class="quiet" role="status"></p>
  </section>

  <div class="sides{}">{}</div>
  <ul class="legend">
    <li><i class="run"></i>handler</li><li><i class="win"></i>in flight</li><li><i class="double"></i>charged again</li>
    <li><i class="skip"></i>duplicate skipped</li><li><i class="ice"></i>frozen</li><li><i class="down"></i>store out of reach</li>
    <li><i class="kill"></i>SIGKILL</li><li class="quiet">every counter but sent, delivered and skipped is read from the ledger</li>
  </ul>
  <noscript><p>This page shows a run while it goes on: it needs its script.</p></noscript>
</main>
</body>
</html>
`, s.Name, s.Title, asks, strikes, look.Each(v.board.workers(), workerButtons), pair, look.Each(v.board.sides, (*side).html))
}

func workerButtons(worker int) look.HTML {
	return look.Format(`<span class="worker"><b>worker {}</b><button type="button" data-do="kill" data-worker="{}" class="harm" aria-label="Kill worker {}">Kill</button>`+
		`<button type="button" data-do="freeze" data-worker="{}" data-lasts aria-label="Freeze worker {}">Freeze</button></span>`, worker, worker, worker, worker, worker)
}

func (s *side) html() look.HTML {
	return look.Format(`
    <section class="side" data-side="{}" aria-label="Guard {}">
      <h2>Guard {} <span class="tag" data-verdict hidden></span></h2>
      <p class="says quiet">{}</p>
      <dl class="counters">
        <div><dt>sent</dt><dd data-f="sent">0</dd></div>
        <div><dt>delivered</dt><dd data-f="delivered">0</dd></div>
        <div><dt>effects</dt><dd data-f="effects">0</dd></div>
        <div><dt>skipped</dt><dd data-f="skipped">0</dd></div>
        <div class="harm"><dt>duplicates</dt><dd data-f="duplicated">0</dd></div>
        <div class="harm"><dt>lost</dt><dd data-f="lost">0</dd></div>
        <div class="harm wide"><dt>charged too much</dt><dd data-f="money">0</dd></div>
      </dl>
      <canvas role="img" aria-label="The last seconds of the run with the guard {}, one lane per worker"></canvas>
      <div class="messages" tabindex="0" role="group" aria-label="The newest messages">
      <table><thead><tr><th scope="col">message</th><th scope="col">key</th><th scope="col">worker</th><th scope="col">visible in</th><th scope="col">record</th></tr></thead>
      <tbody></tbody></table></div>
      <ol class="log" tabindex="0" aria-label="What happened, the newest first"></ol>
    </section>`, s.Guard, s.Guard, s.Guard, s.Says, s.Guard)
}
