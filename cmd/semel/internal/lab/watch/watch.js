(() => {
  "use strict";
  const $ = (q, r = document) => r.querySelector(q), $$ = (q, r = document) => [...r.querySelectorAll(q)];
  const reduced = matchMedia("(prefers-reduced-motion: reduce)");
  const WINDOW = 14000, LAG = 300, LANE = 54, ROW = 9, AXIS = 18, MAXROWS = 4, LABEL = 70, LOG = 80, KEPT = 1000, MESSAGES = 6;

  // One side: its lanes, and what was said of it.
  const sides = new Map($$(".side").map((el) => [el.dataset.side, {
    el, canvas: $("canvas", el), log: $(".log", el), lanes: new Map(), down: [], lines: [],
    messages: new Map(), records: new Map(), table: $("tbody", el), count: $$("button[data-do=kill]").length,
  }]));
  const lane = (s, w) => {
    if (!s.lanes.has(w)) s.lanes.set(w, { lives: [], spans: [], open: new Map(), frozen: [], kills: [], asked: [] });
    return s.lanes.get(w);
  };
  const seconds = (ms) => Math.max(0, ms / 1000).toFixed(1);

  // The log has what is out of the ordinary. With a filter it has everything that happened to one message or key.
  const only = $("#only");
  const wanted = (about) => about.some((a) => a && a.includes(only.value.trim()));
  const listed = (line) => only.value.trim() ? wanted(line.about) : !line.routine;
  const item = (line) => {
    const li = document.createElement("li"), time = document.createElement("time"), span = document.createElement("span");
    time.textContent = seconds(line.t);
    span.textContent = line.text;
    span.className = line.tone;
    li.append(time, span);
    return li;
  };
  const note = (s, line) => {
    s.lines.push(line);
    if (s.lines.length > KEPT) s.lines.shift();
    if (!listed(line)) return;
    s.log.prepend(item(line));
    while (s.log.children.length > LOG) s.log.lastChild.remove();
  };
  only.addEventListener("input", () => {
    for (const s of sides.values()) {
      s.log.replaceChildren(...s.lines.filter(listed).slice(-LOG).reverse().map(item));
      tabulate(s);
    }
  });

  // The newest messages, with the time until each is visible to other workers, and the record of its key.
  const RECORDS = {
    executed: "COMPLETED", replayed: "COMPLETED", replayed_other_payload: "COMPLETED", retried: "RELEASED", dead_lettered: "FAILED",
    parked_uncertain: "UNCERTAIN", busy_deferred: "IN_PROGRESS", taken_over: "IN_PROGRESS",
  };
  const follow = (s, e) => {
    if (!e.m) return;
    const m = s.messages.get(e.m) ?? {};
    s.messages.delete(e.m); // the newest last
    s.messages.set(e.m, Object.assign(m, { id: e.m, key: e.key || m.key }));
    switch (e.k) {
      case "received": Object.assign(m, { worker: e.w, until: e.t + (e.v ?? 0), settled: false }); break;
      case "extended": m.until = Math.max(m.until ?? 0, e.t + (e.v ?? 0)); break;
      case "settled": m.settled = e.a !== "dropped"; break;
      case "started": s.records.set(m.key, "IN_PROGRESS"); break;
      case "decided": if (RECORDS[e.a]) s.records.set(m.key, RECORDS[e.a]); break;
    }
    if (s.messages.size > KEPT) s.messages.delete(s.messages.keys().next().value);
  };
  const left = (m) => m.settled || m.until === undefined ? "–" : m.until > now() ? ((m.until - now()) / 1000).toFixed(1) + " s" : "visible";
  const tabulate = (s) => {
    const newest = [...s.messages.values()].filter((m) => !only.value.trim() || wanted([m.id, m.key])).slice(-MESSAGES).reverse();
    s.table.replaceChildren(...newest.map((m) => {
      const tr = document.createElement("tr");
      for (const text of [m.id, m.key, m.worker ?? "", left(m), s.el.dataset.side === "on" ? s.records.get(m.key) ?? "" : "none"]) {
        tr.insertCell().textContent = text ?? "";
      }
      return tr;
    }));
  };

  // What happens to every message.
  const ROUTINE = {
    received: () => "receives it", started: () => "starts its handler", ended: (e) => e.a ? `fails: ${e.a}` : "has run it",
    extended: () => "extends its visibility", decided: (e) => `decides: ${e.a}`, settled: (e) => `settles it: ${e.a}`,
  };

  // happened takes one event into the lanes.
  const happened = (e) => {
    const s = sides.get(e.g);
    if (!s) return;
    follow(s, e);
    const say = (s, t, text, tone = "") => note(s, { t, text, tone, about: [e.m, e.key] });
    if (e.m && ROUTINE[e.k]) note(s, { t: e.t, text: `${e.key || e.m}: worker ${e.w} ${ROUTINE[e.k](e)}`, tone: "", about: [e.m, e.key], routine: true });
    if (e.k === "down") { s.down.push({ a: e.t, b: null }); say(s, e.t, "the store is out of reach", "fault"); return; }
    if (e.k === "up") { const d = s.down.at(-1); if (d) d.b = e.t; say(s, e.t, "the store is back"); return; }
    if (e.k === "fault") {
      say(s, e.t, e.a === "deaf" ? "heartbeats fail" : "the next ack will be dropped", "fault");
      return;
    }
    if (!e.w) return;
    const l = lane(s, e.w), id = e.l + " " + e.m;
    let p = l.open.get(id);
    switch (e.k) {
      case "spawn":
        l.lives.push({ a: e.t, b: null, pid: e.p });
        break;
      case "exit": {
        const life = l.lives.at(-1);
        if (life) { life.b = e.t; life.how = e.a; }
        for (const q of l.open.values()) { q.b = e.t; q.cut = e.a === "killed"; }
        l.open.clear();
        for (const f of l.frozen) f.b ??= e.t;
        if (e.a === "killed") { l.kills.push(e.t); say(s, e.t, `worker ${e.w} is dead`, "bad"); }
        break;
      }
      case "strike":
        if (e.a === "freeze") { l.frozen.push({ a: e.t, b: null }); say(s, e.t, `worker ${e.w} stands still`, "fault"); }
        if (e.a === "kill") say(s, e.t, `SIGKILL for worker ${e.w}${e.key ? ", at " + e.key : ""}`, "fault");
        if (e.a === "deploy") say(s, e.t, `worker ${e.w} is to be replaced`, "fault");
        break;
      case "thaw": {
        const f = l.frozen.at(-1);
        if (f) f.b = e.t;
        say(s, e.t, `worker ${e.w} goes on`);
        break;
      }
      case "received": {
        if (p) p.b ??= Math.min(e.t, p.until);
        p = { a: e.t, b: null, until: e.t + (e.v ?? 0), key: e.key, m: e.m, row: 0, beats: [] };
        const busy = new Set([...l.open.values()].map((q) => q.row));
        while (busy.has(p.row) && p.row < MAXROWS - 1) p.row++;
        l.open.set(id, p);
        l.spans.push(p);
        break;
      }
      case "started": if (p) p.run = e.t; break;
      case "ended": if (p) { p.ran = e.t; if (e.a) p.bad = true; } break;
      case "extended": if (p) { p.until = Math.max(p.until, e.t + (e.v ?? 0)); p.beats.push(e.t); } break;
      case "decided":
        if (e.a?.startsWith("replayed") && p) { p.skip = e.t; say(s, e.t, `${e.key}: duplicate skipped`, "good"); }
        if (e.a === "fenced") say(s, e.t, `${e.key}: worker ${e.w} comes too late, and writes nothing`, "good");
        if (e.a === "taken_over") say(s, e.t, `${e.key}: worker ${e.w} takes it over`, "good");
        if (e.a === "dead_lettered") say(s, e.t, `${e.key}: put aside as a dead letter`);
        break;
      case "settled":
        if (p) { p.b = e.t; p.ran ??= e.t; l.open.delete(id); }
        if (e.a === "dropped") say(s, e.t, `the ack of ${e.key} is dropped on its way`, "fault");
        break;
      case "undone":
        say(s, e.t, e.a ? `${e.key}: ✗ compensation failed, and will be repeated: ${e.a}` : `${e.key}: a step is undone`, e.a ? "bad" : "good");
        break;
      case "doubled": {
        const q = l.spans.findLast((x) => x.m === e.m && x.run !== undefined && x.run <= e.t + 5);
        if (q) q.double = true;
        say(s, e.t, `${e.key} is charged again: ${e.a} too much`, "bad");
        break;
      }
    }
  };

  // Drawing. The picture is a little late, so that what arrives in batches grows evenly.
  let zero = null, serverNow = 0, over = false;
  const now = () => (zero === null ? 0 : over ? serverNow : Math.min(performance.now() - zero - LAG, serverNow + 2000));
  let palette = {};
  const mix = () => {
    const probe = document.createElement("i");
    document.body.append(probe);
    for (const n of ["ink", "quiet", "line", "card", "bad-fill", "good-fill", "work", "amber", "win", "ice", "edge"]) {
      probe.style.color = `var(--${n})`;
      palette[n] = getComputedStyle(probe).color;
    }
    probe.remove();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", mix);

  const draw = (s) => {
    const c = s.canvas, w = c.clientWidth, h = AXIS + s.count * LANE + 2, dpr = devicePixelRatio || 1;
    if (c.width !== Math.round(w * dpr) || c.height !== Math.round(h * dpr)) {
      c.width = Math.round(w * dpr);
      c.height = Math.round(h * dpr);
      c.style.height = h + "px";
    }
    const g = c.getContext("2d"), end = now(), from = end - WINDOW;
    g.setTransform(dpr, 0, 0, dpr, 0, 0);
    g.clearRect(0, 0, w, h);
    const x = (t) => LABEL + (t - from) / WINDOW * (w - LABEL - 6);
    const box = (a, b, y, hh, fill, min = 1.5) => {
      const x0 = Math.max(LABEL, x(a)), x1 = Math.min(w - 6, x(b ?? end));
      if (x1 < LABEL || x0 > w - 6) return null;
      g.fillStyle = fill;
      g.fillRect(x0, y, Math.max(min, x1 - x0), hh);
      return [x0, Math.max(min, x1 - x0)];
    };
    g.font = "11px system-ui, sans-serif";
    for (let t = Math.ceil(from / 2000) * 2000; t <= end; t += 2000) {
      if (t < 0 || x(t) < LABEL) continue;
      g.fillStyle = palette.line;
      g.fillRect(x(t), AXIS - 4, 1, h);
      g.fillStyle = palette.quiet;
      if (x(t) < w - 34) g.fillText(t / 1000 + " s", x(t) + 3, 12);
    }
    for (let i = 1; i <= s.count; i++) {
      const l = lane(s, i), y = AXIS + (i - 1) * LANE;
      g.fillStyle = palette.line;
      g.fillRect(0, y, w, 1);
      const life = l.lives.at(-1), dead = !life || life.b !== null, still = l.frozen.at(-1)?.b === null;
      g.fillStyle = palette.ink;
      g.font = "600 11.5px system-ui, sans-serif";
      g.fillText("worker " + i, 7, y + 18);
      g.font = "11px system-ui, sans-serif";
      g.fillStyle = palette.quiet;
      g.fillText(!life ? "starting" : dead ? (life.how === "killed" ? "dead" : "ended") : still ? "frozen" : "pid " + life.pid, 7, y + 33);
      for (const v of l.lives) {
        g.globalAlpha = .07;
        box(v.a, v.b, y + 3, LANE - 6, palette.work);
        g.globalAlpha = 1;
      }
      // What was left lying is nobody's any more when its visibility ends; what runs on is still in flight.
      for (const [id, p] of l.open) {
        if (p.until < end && (p.run === undefined || p.ran !== undefined)) { p.b = Math.max(p.until, p.ran ?? 0); l.open.delete(id); }
      }
      for (const p of l.spans) {
        const top = y + 8 + p.row * (ROW + 2);
        box(p.a, p.b, top, ROW, palette.win);
        if (p.run !== undefined) box(p.run, p.ran ?? p.b, top + 1, ROW - 2, p.double ? palette["bad-fill"] : p.cut || p.bad ? palette.edge : palette.work);
        for (const t of p.beats) if (t > from) box(t, t, top - 1, ROW + 2, palette.ink, 1.2);
        if (p.skip > from) { g.fillStyle = palette["good-fill"]; g.beginPath(); g.arc(x(p.skip), top + ROW / 2, 4.2, 0, 7); g.fill(); }
      }
      for (const f of l.frozen) {
        const at = box(f.a, f.b, y + 3, LANE - 6, "transparent");
        if (!at) continue;
        g.save();
        g.beginPath();
        g.rect(at[0], y + 3, at[1], LANE - 6);
        g.clip();
        g.strokeStyle = palette.ice;
        g.lineWidth = 1.2;
        g.beginPath();
        for (let k = at[0] - LANE; k < at[0] + at[1]; k += 7) { g.moveTo(k, y + LANE); g.lineTo(k + LANE, y); }
        g.stroke();
        g.restore();
      }
      for (const t of l.kills) if (t > from) box(t, t, y + 2, LANE - 4, palette["bad-fill"], 3);
    }
    for (const d of s.down) {
      g.globalAlpha = .16;
      const at = box(d.a, d.b, AXIS, h - AXIS, palette.amber);
      g.globalAlpha = 1;
      if (!at) continue;
      g.strokeStyle = palette.amber;
      g.setLineDash([4, 3]);
      g.strokeRect(at[0] + .5, AXIS + .5, at[1] - 1, h - AXIS - 1);
      g.setLineDash([]);
    }
    const old = from - 2000;
    for (const l of s.lanes.values()) {
      if (l.spans.length > 400) l.spans = l.spans.filter((p) => p.b === null || p.b > old);
      if (l.lives.length > 50) l.lives = l.lives.slice(-20);
      if (l.kills.length > 100) l.kills = l.kills.filter((t) => t > old);
      if (l.frozen.length > 100) l.frozen = l.frozen.filter((f) => f.b === null || f.b > old);
    }
  };
  const drawAll = () => { for (const s of sides.values()) draw(s); };
  const frame = () => { if (!document.hidden) drawAll(); if (!reduced.matches && !over) requestAnimationFrame(frame); };
  // Who wants less motion gets a picture a second.
  setInterval(() => { if (reduced.matches && !over) drawAll(); }, 1000);
  reduced.addEventListener("change", () => { if (!reduced.matches) frame(); });
  addEventListener("resize", drawAll);

  // Counters and state.
  const state = $("#state"), said = $("#said");
  const show = (s, f) => {
    for (const dd of $$("[data-f]", s.el)) {
      const v = String(f[dd.dataset.f] ?? 0);
      if (dd.textContent !== v) dd.textContent = v;
    }
    for (const [name, n] of [["duplicated", f.duplicated], ["lost", f.lost], ["money", f.duplicated]]) {
      $(`[data-f=${name}]`, s.el).parentElement.classList.toggle("hurt", n > 0);
    }
    s.el.classList.toggle("broken", f.duplicated + f.lost + f.regressed > 0);
    if (f.finishing) { state.textContent = "finishing…"; }
  };
  const end = (last) => {
    over = true;
    for (const b of $$("button")) b.disabled = true;
    let held = true;
    for (const r of last.runs ?? []) {
      const s = sides.get(r.guard);
      if (!s) continue;
      s.el.classList.toggle("broken", r.verdict === "broken");
      s.el.classList.toggle("held", r.verdict === "held");
      const tag = $("[data-verdict]", s.el);
      tag.hidden = false;
      tag.textContent = r.verdict;
      for (const name of ["sent", "delivered", "effects", "duplicated", "lost"]) $(`[data-f=${name}]`, s.el).textContent = r[name];
      if (r.guard === "on" && r.verdict !== "held") held = false;
    }
    state.textContent = last.problem ? "stopped" : "judged";
    state.className = "pill " + (last.problem || !held ? "bad" : "good");
    for (const s of sides.values()) tabulate(s);
    said.textContent = last.problem || "The run has ended: this is the verdict. The terminal has the rest.";
    drawAll();
  };

  const listen = () => {
    const source = new EventSource("events");
    let first = true;
    source.addEventListener("message", (m) => {
      const b = JSON.parse(m.data);
      if (first) { // the server sends what it remembers from the beginning
        for (const s of sides.values()) { s.lanes.clear(); s.down = []; s.lines = []; s.messages.clear(); s.records.clear(); s.log.replaceChildren(); }
        state.textContent = "running";
        first = false;
      }
      serverNow = b.now;
      const at = performance.now() - b.now;
      zero = zero === null ? at : Math.min(zero, at);
      for (const e of b.events ?? []) happened(e);
      for (const [g, f] of Object.entries(b.figures ?? {})) if (sides.has(g)) show(sides.get(g), f);
      if (b.last) { source.close(); end(b.last); }
    });
    source.addEventListener("error", () => { first = true; if (!over) state.textContent = "connection lost"; });
  };

  // Buttons.
  document.addEventListener("click", async (e) => {
    const b = e.target.closest("button[data-do]");
    if (!b) return;
    const ms = Math.round(Number($("#for").value) * 1000);
    const q = { do: b.dataset.do };
    if (b.dataset.worker) q.worker = Number(b.dataset.worker);
    if ("lasts" in b.dataset) q.for_ms = ms;
    if (b.dataset.do === "finish") { state.textContent = "finishing…"; b.disabled = true; }
    said.className = "quiet";
    try {
      const r = await fetch("faults", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(q) });
      said.textContent = r.ok ? `${b.getAttribute("aria-label") || b.textContent}: sent` : await r.text();
      if (!r.ok) said.className = "bad";
    } catch {
      said.textContent = "no response: the run has ended";
      said.className = "bad";
    }
  });

  setInterval(() => { if (!document.hidden && !over) for (const s of sides.values()) tabulate(s); }, 250);
  mix();
  drawAll();
  listen();
  frame();
})();
