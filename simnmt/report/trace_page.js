"use strict";
// Draws the plots of each series. Colours come from the style sheet, so light and dark agree.
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const axis = (text, extra) => ({
    title: { text, standoff: 10 }, gridcolor: colour("line"), linecolor: colour("line"), tickcolor: colour("line"),
    zeroline: false, automargin: true, ...extra,
  });

  const plots = {
    time(series) {
      const says = `%{y:,.4~g} ${series.unit} at %{x:.4~g} ${series.time_unit}<extra></extra>`;
      const traces = [{
        type: "scatter", mode: "lines", name: series.what, x: series.time, y: series.value, hovertemplate: says,
        line: { shape: "hv", width: 1.2, color: colour("accent") },
      }];
      if (series.outages.length) {
        traces.push({
          type: "scatter", mode: "lines+markers", name: "lost", x: series.outages, y: series.outages.map((at) => (at === null ? null : 0)),
          line: { width: 4, color: colour("bad") }, marker: { size: 5, color: colour("bad") },
          hovertemplate: `lost at %{x:.5~g} ${series.time_unit}<extra></extra>`,
        });
      }
      return {
        traces,
        layout: {
          xaxis: axis(`time, ${series.time_unit}`),
          yaxis: axis(`${series.what}, ${series.unit}`, { rangemode: "tozero" }),
        },
      };
    },
    distribution(series) {
      return {
        traces: [{
          type: "scatter", mode: series.quantile[0] === series.quantile.at(-1) ? "lines+markers" : "lines", name: series.what,
          x: series.quantile, y: series.share, line: { width: 2, color: colour("accent") },
          hovertemplate: `%{y:.2%} up to %{x:,.4~g} ${series.unit}<extra></extra>`,
        }],
        layout: { xaxis: axis(`${series.what}, ${series.unit}`), yaxis: axis("share of samples", { tickformat: ".0%", range: [0, 1.01] }) },
      };
    },
    memory(series) {
      const least = series.autocorrelation.reduce((low, value) => Math.min(low, value ?? 0), 0);
      return {
        traces: [{
          type: "bar", name: "autocorrelation", x: series.lag, y: series.autocorrelation, marker: { color: colour("accent") },
          hovertemplate: "%{y:.3f} at lag %{x}<extra></extra>",
        }],
        layout: { xaxis: axis("lag, samples"), yaxis: axis("autocorrelation", { range: [1.05 * least - 0.02, 1.02] }) },
      };
    },
  };

  async function draw(figure, series) {
    const { traces, layout } = plots[figure.dataset.plot](series);
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

  async function drawAll() {
    const { series } = JSON.parse(document.getElementById("content").textContent);
    for (const section of document.querySelectorAll("section[data-series]")) {
      for (const figure of section.querySelectorAll("figure[data-plot]")) {
        await draw(figure, series[Number(section.dataset.series)]);
      }
    }
  }

  const ready = unpack();
  ready.then(drawAll).catch(fail);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => ready.then(drawAll).catch(fail));
})();
