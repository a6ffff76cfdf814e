"use strict";
// Fetches what is live again, filters and sorts the lists, and plays a run.  Without this script
// the pages show the same, and the form of the replay works.

const REFRESH_MS = 3000;
const FRAME_MS = 200;
const FRAMES = 40;

const live = document.getElementById("live");
const statusLine = document.getElementById("status");
let version = null;
let sorted = { column: -1, descending: false };

function say(words) {
  if (statusLine.textContent !== words) statusLine.textContent = words;
}

function replaceLive(html) {
  const next = new DOMParser().parseFromString(html, "text/html");
  const found = next.getElementById("live");
  if (!found) return;
  const open = [...live.querySelectorAll("details")].map((x) => x.open);
  const reached = [...live.querySelectorAll("a, button, summary, [tabindex]")];
  const focus = reached.indexOf(document.activeElement);
  const scrolled = [...live.querySelectorAll(".wide")].map((x) => x.scrollLeft);
  live.replaceChildren(...found.childNodes);
  live.dataset.live = found.dataset.live;
  live.querySelectorAll("details").forEach((x, n) => { x.open = open[n] ?? x.open; });
  live.querySelectorAll(".wide").forEach((x, n) => { x.scrollLeft = scrolled[n] ?? 0; });
  prepareTables();
  if (focus >= 0) {
    live.querySelectorAll("a, button, summary, [tabindex]")[focus]?.focus({ preventScroll: true });
  }
}

async function refresh() {
  if (document.hidden || live.dataset.live !== "yes") return;
  try {
    const headers = version ? { "If-None-Match": version } : {};
    const answer = await fetch(location.href, { headers, cache: "no-store" });
    if (answer.status === 304) return say("Up to date.");
    if (!answer.ok) return say(`The dashboard answered with ${answer.status}; reload the page.`);
    const text = await answer.text();
    replaceLive(text);
    say(version === null ? "" : `New at ${new Date().toLocaleTimeString()}.`);
    version = answer.headers.get("ETag");
  } catch {
    say("The dashboard does not answer: it has ended, or is busy.");
  }
}

// Lists

function valueOf(row, column) {
  const cell = row.cells[column];
  const data = cell.querySelector("data");
  if (!data) return cell.textContent.trim().toLowerCase();
  return data.value === "" ? null : Number(data.value);
}

function compare(one, other) {
  if (one === null || other === null) return (one === null) - (other === null);
  const order = one < other ? -1 : one > other ? 1 : 0;
  return sorted.descending ? -order : order;
}

function sortRows(table) {
  if (sorted.column < 0) return;
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [valueOf(row, sorted.column), row]);
  rows.sort((a, b) => compare(a[0], b[0]));
  body.append(...rows.map((x) => x[1]));
  [...table.tHead.rows[0].cells].forEach((cell, n) => {
    if (n === sorted.column) cell.ariaSort = sorted.descending ? "descending" : "ascending";
    else cell.removeAttribute("aria-sort");
  });
}

function filterRows(table) {
  const words = document.getElementById("list-search").value.toLowerCase().split(/\s+/);
  const wanted = [...document.querySelectorAll("[data-filter]")].map((x) => x.value);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const cells = [...row.cells].map((x) => x.textContent.trim());
    const text = cells.join(" ").toLowerCase();
    const fits = words.every((x) => text.includes(x));
    row.hidden = !(fits && wanted.every((x) => x === "" || cells.includes(x)));
    shown += !row.hidden;
  }
  return shown;
}

function prepareTables() {
  const table = document.getElementById("list-search") ? live.querySelector("table") : null;
  if (!table) return;
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const button = document.createElement("button");
    button.className = "sort";
    button.type = "button";
    button.textContent = cell.textContent;
    button.addEventListener("click", () => {
      const again = sorted.column === column;
      sorted = { column, descending: again && !sorted.descending };
      sortRows(table);
    });
    cell.replaceChildren(button);
  });
  sortRows(table);
  filterRows(table);
}

function prepareFilters() {
  for (const input of document.querySelectorAll("#list-search, [data-filter]")) {
    input.addEventListener("input", () => {
      const table = live.querySelector("table");
      if (table) say(`${filterRows(table)} rows are shown.`);
    });
  }
}

// Replay

function prepareReplay() {
  const form = document.getElementById("replay");
  if (!form) return;
  const slider = document.getElementById("trial");
  const play = document.getElementById("play");
  const number = document.getElementById("trial-number");
  let playing = false;
  let wanted = null;
  let busy = false;

  async function show() {
    number.textContent = `${slider.value} of ${slider.max}`;
    wanted = `${form.action.split("?")[0]}?${new URLSearchParams(new FormData(form))}`;
    if (busy) return;
    busy = true;
    while (wanted) {
      const address = wanted;
      wanted = null;
      try {
        const answer = await fetch(address);
        if (answer.ok) replaceLive(await answer.text());
        history.replaceState(null, "", address);
      } catch {
        say("The dashboard does not answer: it has ended, or is busy.");
        stop();
      }
    }
    busy = false;
  }

  function stop() {
    playing = false;
    play.textContent = "Play";
  }

  async function run() {
    playing = true;
    play.textContent = "Pause";
    if (Number(slider.value) >= Number(slider.max)) slider.value = 0;
    const step = Math.max(1, Math.ceil(Number(slider.max) / FRAMES));
    while (playing) {
      await show();
      if (Number(slider.value) >= Number(slider.max)) break;
      await new Promise((done) => setTimeout(done, FRAME_MS));
      if (playing) slider.value = Number(slider.value) + step;
    }
    stop();
  }

  document.getElementById("show").hidden = true;
  play.hidden = false;
  play.addEventListener("click", () => (playing ? stop() : run()));
  slider.addEventListener("input", () => { stop(); show(); });
  document.getElementById("kernel-choice").addEventListener("input", show);
}

prepareTables();
prepareFilters();
prepareReplay();
refresh();
setInterval(refresh, REFRESH_MS);
