(() => {
  "use strict";
  const reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const $ = (q, r = document) => r.querySelector(q), $$ = (q, r = document) => [...r.querySelectorAll(q)];

  // Light and dark: the system's choice until the reader makes another.
  const root = document.documentElement, theme = $("#theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const now = root.style.colorScheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    root.style.colorScheme = now === "dark" ? "light" : "dark";
  });

  // Timelines: every time is laid out anew for the width and the zoom.
  const charts = $$("figure.tl").map((fig) => {
    const scroll = $(".scroll", fig), svg = $("svg", scroll), end = +fig.dataset.end;
    const spans = $$("[data-a]", svg).map((el) => [el, +el.dataset.a, +el.dataset.b]);
    const marks = $$("[data-x]", svg).map((el) => [el, +el.dataset.x]);
    const labels = $$("[data-room]", svg).map((el) => [el, el.dataset.room - el.dataset.x]);
    let scale = 0, fitted = true;
    const fit = () => (scroll.clientWidth - 18) / end;
    const start = () => Math.max(fit(), 440 / end);
    const layout = (next) => {
      scale = Math.min(Math.max(next, fit()), 4);
      for (const [el, a, b] of spans) {
        el.setAttribute("x", (a * scale).toFixed(1));
        el.setAttribute("width", Math.max((b - a) * scale, 1.5).toFixed(1));
      }
      for (const [el, x] of marks) el.setAttribute("transform", `translate(${(x * scale).toFixed(1)})`);
      for (const [el, room] of labels) el.style.display = room * scale < 66 ? "none" : "";
      svg.setAttribute("width", Math.ceil(end * scale + 16));
    };
    // zoom keeps the time under px where it is.
    const zoom = (factor, px = scroll.clientWidth / 2) => {
      const time = (scroll.scrollLeft + px) / scale;
      fitted = false;
      layout(scale * factor);
      scroll.scrollLeft = time * scale - px;
    };
    // A page that is hidden has no width: it is laid out when it is shown.
    const refit = () => { if (fitted && scroll.clientWidth > 0) layout(start()); };
    refit();
    addEventListener("resize", refit);
    $(".tools", fig).hidden = false;
    fig.addEventListener("click", (e) => {
      const how = e.target.dataset.zoom;
      if (how === "in") zoom(1.7);
      if (how === "out") zoom(1 / 1.7);
      if (how === "fit") { layout(fit()); fitted = true; }
    });
    scroll.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && !e.metaKey) return;
      e.preventDefault();
      zoom(Math.exp(-e.deltaY / 250), e.clientX - scroll.getBoundingClientRect().left);
    }, { passive: false });
    scroll.addEventListener("keydown", (e) => {
      if (e.key === "+" || e.key === "=") zoom(1.7);
      if (e.key === "-") zoom(1 / 1.7);
    });
    const show = (els) => {
      const at = Math.min(...els.map((el) => +$("[data-a]", el).dataset.a)) * scale;
      if (at < scroll.scrollLeft || at > scroll.scrollLeft + scroll.clientWidth * .8) scroll.scrollLeft = at - 60;
    };
    return { fig, svg, show, refit, scenario: fig.closest(".scenario") };
  });

  // Details of what is pointed at.
  const tip = $("#tip");
  const place = (x, y) => {
    tip.hidden = false;
    const r = tip.getBoundingClientRect();
    tip.style.left = Math.max(12, Math.min(x + 14, innerWidth - r.width - 12)) + "px";
    tip.style.top = (y + 18 + r.height > innerHeight ? Math.max(8, y - r.height - 14) : y + 18) + "px";
  };
  for (const { svg } of charts) {
    svg.addEventListener("pointermove", (e) => {
      const el = e.target.closest("[data-d]");
      if (!el) { tip.hidden = true; return; }
      tip.textContent = el.dataset.d;
      place(e.clientX, e.clientY);
    });
    svg.addEventListener("pointerleave", (e) => { if (e.pointerType === "mouse") tip.hidden = true; });
    svg.addEventListener("click", (e) => {
      const el = e.target.closest("[data-d]");
      if (el) { tip.textContent = el.dataset.d; place(e.clientX, e.clientY); }
      follow(el?.dataset.k || "", false, svg.closest(".scenario"));
    });
  }
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // One order through both runs.
  const chip = $("#chip");
  const follow = (key, jump, scenario) => {
    chip.hidden = !key;
    $("span", chip).textContent = key ? "Following " + key : "";
    for (const c of charts) {
      const own = [];
      for (const el of $$(".sp", c.svg)) {
        const on = key !== "" && el.dataset.k === key && c.scenario === scenario;
        el.classList.toggle("on", on);
        if (on) own.push(el);
      }
      c.svg.classList.toggle("following", key !== "" && c.scenario === scenario);
      if (own.length) c.show(own);
    }
    const first = charts.find((c) => c.scenario === scenario);
    if (key && jump && first) first.fig.scrollIntoView({ behavior: reduced ? "auto" : "smooth", block: "start" });
  };
  $("button", chip).addEventListener("click", () => follow("", false));
  for (const b of $$("button.order")) b.addEventListener("click", () => follow(b.dataset.key, true, b.closest(".scenario")));
  addEventListener("keydown", (e) => { if (e.key === "Escape") { follow("", false); tip.hidden = true; } });

  // Long lists are folded.
  for (const all of $$("button.all")) {
    const orders = $(".orders", all.closest("section"));
    all.hidden = false;
    orders.classList.add("folded");
    all.addEventListener("click", () => { orders.classList.remove("folded"); all.hidden = true; });
  }

  // Many scenarios: one page at a time. Without a script all of them follow each other.
  const scenarios = $$(".scenario");
  if (scenarios.length < 2) return;
  document.body.classList.add("paged");
  const turn = (moved) => {
    const id = decodeURIComponent(location.hash.slice(1));
    const at = scenarios.find((s) => s.id === id) || scenarios[0];
    for (const s of scenarios) s.hidden = s !== at;
    follow("", false);
    for (const c of charts) if (c.scenario === at) c.refit();
    if (!moved) return;
    scrollTo(0, 0);
    $("h1", at).focus({ preventScroll: true });
  };
  addEventListener("hashchange", () => turn(true));
  turn(false);
})();
