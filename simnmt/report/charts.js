// Draws the figures of a section when it opens, and again for a choice, a narrow window, a colour scheme or a printer.
const narrow = matchMedia("(max-width: 44rem)");
const coarse = matchMedia("(pointer: coarse)");
const PRINTED_WIDTH = 640;
let printing = false;

async function unpacked(id) {
  const text = atob(document.getElementById(id).textContent);
  // Uint8Array.from calls a function for each of two million characters: 370 ms instead of 25.
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// A chart with the lists of the pool and the colours of the style sheet in their places.
function revived(value, pool, styles) {
  if (typeof value === "string") {
    return value.startsWith("var(--") ? styles.getPropertyValue(value.slice(4, -1)).trim() : value;
  }
  if (Array.isArray(value)) return typeof value.at(-1) === "number" ? value : value.map((entry) => revived(entry, pool, styles));
  if (value === null || typeof value !== "object") return value;
  if ("pool" in value) return revived(pool[value.pool], pool, styles);
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, revived(entry, pool, styles)]));
}

// A legend of many rows takes its room from the page, not from the chart.
function fitted(chart, { data, layout }) {
  const names = data.filter((trace) => trace.showlegend).length;
  const rows = narrow.matches ? Math.max(names - 3, 0) : Math.max(Math.ceil(names / 3) - 2, 0);
  chart.style.minHeight = `${(narrow.matches ? 20 : 23) + 1.2 * rows}rem`;
  const paper = printing ? { width: PRINTED_WIDTH, height: 380 } : { autosize: true };
  return { ...layout, ...paper, showlegend: names > 0, dragmode: coarse.matches ? false : "zoom" };
}

const chosen = (figure) => [...figure.querySelectorAll("[data-control]")]
  .map((control) => control.value ?? control.querySelector('[aria-pressed="true"]').dataset.value).join("|");

function draw({ figure, charts, pool, template }) {
  const chart = figure.querySelector(".chart");
  const options = chosen(figure);
  const { reading, ...drawn } = revived(charts[options], pool, getComputedStyle(document.documentElement));
  const shared = revived(template, pool, getComputedStyle(document.documentElement));
  shared.layout.font.family = getComputedStyle(document.body).fontFamily;
  const layout = { ...fitted(chart, drawn), template: shared, uirevision: options };
  const words = figure.querySelector("[data-reading]");
  words.textContent = reading;
  words.hidden = !reading;
  // One call draws it all before it returns, so that a printer finds every figure drawn.
  Plotly.react(chart, drawn.data, layout, { displayModeBar: false, responsive: !printing }).catch(fail);
  figure.dataset.drawn = "yes";
}

function fail(error) {
  const place = document.getElementById("failure");
  place.textContent = `The figures could not be drawn (${error.message}). They need a browser of 2023 or later.`;
  place.hidden = false;
}

async function loaded(section) {
  const { pool, charts, template } = JSON.parse(await unpacked(`${section.id}-data`));
  const figures = [...section.querySelectorAll("figure[data-figure]")];
  return figures.map((figure, at) => ({ figure, charts: charts[at], pool, template }));
}

async function start() {
  const script = document.createElement("script");
  script.textContent = await unpacked("plotly-packed");
  document.head.append(script);
}

const sections = [...document.querySelectorAll("[data-figures]")];
const figures = new Map();
const isOpen = (section) => !section.closest("details:not([open])");
const redraw = () => sections.filter(isOpen).forEach((section) => (figures.get(section) ?? []).forEach(draw));
const redrawAll = () => { try { redraw(); } catch (error) { fail(error); } };

function listen(section) {
  for (const drawn of figures.get(section)) {
    drawn.figure.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-value]");
      if (!button) return;
      for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
      draw(drawn);
    });
    drawn.figure.addEventListener("change", () => draw(drawn));
  }
}

async function run() {
  await start();
  for (const section of sections) {
    figures.set(section, await loaded(section));
    listen(section);
    if (isOpen(section)) figures.get(section).forEach(draw);
    // A closed section has no size to draw in, so it waits until it is opened.
    section.closest("details")?.addEventListener("toggle", () => { if (!printing && isOpen(section)) figures.get(section).forEach(draw); });
  }
}
run().catch(fail);

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
narrow.addEventListener("change", redrawAll);

// On paper everything is open, in light colours, and as wide as the paper, whatever the window is.
function print(begins) {
  printing = begins;
  for (const details of document.querySelectorAll("details")) {
    if (begins) details.dataset.wasOpen = details.open ? "yes" : "";
    details.open = begins || details.dataset.wasOpen === "yes";
  }
  if (begins) document.documentElement.dataset.theme = "light";
  else delete document.documentElement.dataset.theme;
  redrawAll();
}
addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));

// A figure of a linked section can only be seen where the section is open.
for (const link of document.querySelectorAll('a[href^="#"]')) {
  link.addEventListener("click", () => { document.querySelector(link.getAttribute("href"))?.closest("details")?.setAttribute("open", ""); });
}
