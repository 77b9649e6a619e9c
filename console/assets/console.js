// Two behaviours, both optional: pages stay current, and a box in the head of a list selects all of it.
"use strict";
const busy = () => document.hidden || document.activeElement?.closest("main form, main [tabindex]") || document.querySelector("main input:checked:not([data-default])");

async function refresh() {
  if (busy()) return;
  try {
    const at = document.querySelector("[data-at]")?.dataset.at ?? location.href; // the page of a form has no address of its own
    const r = await fetch(at, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(10000) });
    if (!r.ok) throw new Error(r.statusText);
    const next = new DOMParser().parseFromString(await r.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = next.getElementById(part.id);
      if (other && other.outerHTML !== part.outerHTML && !part.contains(document.activeElement)) part.replaceWith(document.adoptNode(other));
    }
    state("live");
  } catch {
    state("no connection: what you see is old");
  }
}

function state(text) {
  const at = document.getElementById("live");
  if (at && at.textContent !== text) at.textContent = text;
}

document.addEventListener("change", (e) => {
  if (!e.target.matches("[data-all]")) return;
  for (const box of e.target.closest("table").querySelectorAll("tbody input[type=checkbox]")) box.checked = e.target.checked;
});

for (const box of document.querySelectorAll("[data-all]")) box.hidden = false;
if (document.querySelector("[data-live]")) setInterval(refresh, document.querySelector("[data-at]") ? 1000 : 5000);
