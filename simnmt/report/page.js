// Draws the figures of a section when it opens, and again when a button, a window or a colour scheme asks for it.
const drawn = new Set();

function stateOf(figure) {
  const pressed = [...figure.querySelectorAll('button[aria-pressed="true"]')].map((button) => [button.dataset.option, button.dataset.value]);
  const selected = [...figure.querySelectorAll("select[data-option]")].map((list) => [list.dataset.option, list.value]);
  return Object.fromEntries([...pressed, ...selected]);
}

async function draw(figure, content) {
  const { traces, layout, reading } = figures[figure.dataset.figure](content, stateOf(figure));
  const chart = figure.querySelector(".chart");
  const words = figure.querySelector("[data-reading]");
  if (words) words.textContent = reading;
  // A legend of many rows takes its room from the figure, not from what the figure shows.
  const named = traces.filter((trace) => trace.showlegend !== false).length;
  const rows = narrow.matches ? Math.max(named - 3, 0) : Math.max(Math.ceil(named / 3) - 2, 0);
  chart.style.minHeight = `${(narrow.matches ? 20 : 23) + 1.2 * rows}rem`;
  await Plotly.react(chart, traces, {
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("soft") },
    separators: ".\u202f", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
    margin: { l: 48, r: 8, t: 8, b: 40 }, hovermode: "closest", dragmode: coarse.matches ? false : "zoom", showlegend: true,
    legend: legend(),
    hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("ink") } },
    uirevision: JSON.stringify(stateOf(figure)),
    ...layout,
  }, { displayModeBar: false, responsive: true });
  figure.dataset.drawn = "yes";
}

function fail(error) {
  const place = document.getElementById("failure");
  place.textContent = `The figures could not be drawn (${error.message}). They need a browser of 2023 or later.`;
  place.hidden = false;
}

async function unpacked(id) {
  const text = atob(document.getElementById(id).textContent);
  // Uint8Array.from calls a function for each of two million characters: 370 ms instead of 25.
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

async function start() {
  const script = document.createElement("script");
  script.textContent = await unpacked("plotly-packed");
  document.head.append(script);
}

const ready = start();
ready.catch(fail);

async function open(section) {
  section.dataset.opened = "yes";
  await ready;
  const content = JSON.parse(await unpacked(`${section.id}-data`));
  for (const figure of section.querySelectorAll("figure[data-figure]")) {
    await draw(figure, content);
    drawn.add({ figure, content });
    figure.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-option]");
      if (!button) return;
      for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
      draw(figure, content).catch(fail);
    });
    figure.addEventListener("change", () => draw(figure, content).catch(fail));
  }
}

// A closed section has no size to draw in, so it waits until it is opened again.
const isOpen = (section) => section.tagName !== "DETAILS" || section.open;

async function redraw(section) {
  for (const { figure, content } of drawn) {
    if (!isOpen(figure.closest("[data-figures]")) || (section && !section.contains(figure))) continue;
    await draw(figure, content);
    await Plotly.Plots.resize(figure.querySelector(".chart"));
  }
}

for (const section of document.querySelectorAll("[data-figures]")) {
  const shown = () => {
    if (isOpen(section)) (section.dataset.opened ? redraw(section) : open(section)).catch(fail);
  };
  section.addEventListener("toggle", shown);
  shown();
}

const redrawAll = () => redraw().catch(fail);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
narrow.addEventListener("change", redrawAll);
for (const link of document.querySelectorAll("table.overview a")) {
  // A figure of the cell can only be seen in an open section.
  link.addEventListener("click", () => { document.querySelector(link.getAttribute("href")).open = true; });
}
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details.words, details.part")) folded.open = true;
  document.documentElement.dataset.theme = "light"; redrawAll(); });
addEventListener("afterprint", () => { delete document.documentElement.dataset.theme; redrawAll(); });
