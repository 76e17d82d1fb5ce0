// Keeps the page new: asks for the same document once a second and puts in what changed. Nothing else is asked
// for, nothing is kept. Without this script the page is whole, as of when it was loaded.
"use strict";

const EVERY = 1000, OLD = 10000;
let heard = Date.now(), asking = false;

// Make `now` equal to `next`, touching only what differs: focus, selection and scroll stay.
function morph(now, next) {
  if (now.isEqualNode(next)) return;
  if (now.nodeType !== next.nodeType || now.nodeName !== next.nodeName || now.id !== next.id) {
    now.replaceWith(next);
    return;
  }
  if (now.nodeType === Node.TEXT_NODE) { now.data = next.data; return; }
  if (now.id === "filter") return; // somebody may be typing there
  for (const { name } of [...now.attributes]) if (!next.hasAttribute(name)) now.removeAttribute(name);
  for (const { name, value } of next.attributes) if (now.getAttribute(name) !== value) now.setAttribute(name, value);
  morphChildren(now, next);
}

function morphChildren(now, next) {
  const wanted = [...next.childNodes];
  const known = new Map([...now.children].filter((each) => each.id).map((each) => [each.id, each]));
  let at = now.firstChild;
  for (const child of wanted) {
    const same = child.id ? known.get(child.id) : at && !at.id ? at : null;
    if (!same) { now.insertBefore(child, at); continue; }
    if (same !== at) now.insertBefore(same, at);
    at = same.nextSibling;
    morph(same, child);
  }
  while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
}

function showCopyButtons(root) {
  for (const button of root.querySelectorAll("button[data-copy]")) button.hidden = false;
}

async function refresh() {
  if (asking || document.hidden) return;
  asking = true;
  const asked = location.href;
  try {
    const answer = await fetch(asked, { cache: "no-store", signal: AbortSignal.timeout(8000) });
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = next.getElementById("main");
    if (answer.ok && main && location.href === asked) {
      showCopyButtons(main);
      for (const button of main.querySelectorAll("button[data-copy]")) {
        const now = document.querySelector(`button[data-copy="${CSS.escape(button.dataset.copy)}"]`);
        if (now) button.textContent = now.textContent;
      }
      morph(document.getElementById("main"), main);
      morph(document.querySelector("nav"), next.querySelector("nav"));
      heard = Date.now();
    }
  } catch { /* said below */ } finally { asking = false; }
  if (location.href !== asked) { refresh(); return; }
  const stale = document.getElementById("stale"), age = Date.now() - heard;
  stale.hidden = age < OLD;
  const said = `This page is ${Math.round(age / 1000)} s old: headrace does not answer. What it shows may be wrong by now.`;
  if (!stale.hidden && stale.textContent !== said) stale.textContent = said;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(button.parentElement.querySelector("code"));
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy text"; }, 2000);
});

const filter = document.getElementById("filter");
if (filter) {
  const follow = () => {
    const asked = new URLSearchParams(location.search);
    for (const [name, value] of new FormData(filter)) asked.set(name, value);
    history.replaceState(null, "", `?${asked}`);
    refresh();
  };
  filter.addEventListener("input", follow);
  filter.addEventListener("submit", (event) => { event.preventDefault(); follow(); });
  filter.querySelector("button").hidden = true;
}

showCopyButtons(document);
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, EVERY);
