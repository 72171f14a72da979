"use strict";
// What pages of plain plots have in common. Colours come from the style sheet, so light and dark agree.
const plainPlots = (() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const axis = (text, extra) => ({
    title: { text, standoff: 10 }, gridcolor: colour("line"), linecolor: colour("line"), tickcolor: colour("line"),
    zeroline: false, automargin: true, ...extra,
  });

  async function draw(figure, traces, layout) {
    await Plotly.react(figure.querySelector(".chart"), traces, {
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("soft") },
      separators: ".\u202f", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
      margin: { l: 48, r: 8, t: 8, b: 40 }, hovermode: "closest", showlegend: traces.length > 1,
      legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", font: { color: colour("ink") } },
      hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("ink") } },
      ...layout,
    }, { displayModeBar: false, responsive: true });
    figure.dataset.drawn = "yes";
  }

  function fail(error) {
    const place = document.getElementById("failure");
    place.textContent = `The plots could not be drawn (${error.message}). They need a browser of 2023 or later.`;
    place.hidden = false;
  }

  async function unpack() {
    const packed = atob(document.getElementById("plotly-packed").textContent);
    const bytes = new Uint8Array(packed.length);
    for (let at = 0; at < packed.length; at += 1) bytes[at] = packed.charCodeAt(at);
    const script = document.createElement("script");
    script.textContent = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    document.head.append(script);
  }

  // `plotOf` takes a figure, its section and the page's content, and gives traces and layout.
  function drawPage(plotOf) {
    const content = JSON.parse(document.getElementById("content").textContent);
    async function drawAll() {
      for (const figure of document.querySelectorAll("figure[data-plot]")) {
        const { traces, layout } = plotOf(figure, figure.closest("section"), content);
        await draw(figure, traces, layout);
      }
    }
    const ready = unpack();
    ready.then(drawAll).catch(fail);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => ready.then(drawAll).catch(fail));
  }

  return { axis, colour, drawPage };
})();
