"use strict";
// Draws the plots of each profile. Colours come from the style sheet, so light and dark agree.
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const axis = (text, extra) => ({
    title: { text, standoff: 10 }, gridcolor: colour("line"), linecolor: colour("line"), tickcolor: colour("line"),
    zeroline: false, automargin: true, ...extra,
  });

  // A band is drawn as its upper edge and, filled up to it, its lower one.
  function trace(series, at, plot) {
    const own = colour(series.colour === undefined ? "accent" : `policy-${series.colour}`);
    const several = plot.series.filter((each) => each.colour === undefined && !each.role && each.form === "line").length > 1;
    const ink = several ? colour(`policy-${at}`) : own;
    const base = {
      type: "scatter", name: series.name, x: series.x, y: series.y, legendgroup: series.name,
      hovertemplate: `%{y:,.4~g} ms at %{x:,.4~g}<extra>${series.labels ? "%{text}" : "%{fullData.name}"}</extra>`,
    };
    if (series.labels) base.text = series.labels;
    switch (series.role) {
      case "band": return { ...base, mode: "lines", line: { width: 0 }, showlegend: false, hoverinfo: "skip", hovertemplate: null };
      case "band-to": return {
        ...base, name: "one standard deviation", mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: colour("rtt-wash"),
        hoverinfo: "skip", hovertemplate: null,
      };
      case "guide": return { ...base, mode: "lines", line: { width: 1.2, dash: "dot", color: colour("soft") }, hoverinfo: "skip", hovertemplate: null };
      default:
    }
    if (series.form === "line") return { ...base, mode: "lines", line: { width: 2, color: ink } };
    return {
      ...base, mode: "markers",
      marker: {
        size: series.size ?? 6, color: own, opacity: series.labels ? 0.7 : 1,
        symbol: series.role === "judge" ? "circle-open" : "circle",
      },
      showlegend: !["of-line", "judge"].includes(series.role),
    };
  }

  async function draw(figure, plot) {
    const scale = plot.log ? { type: "log" } : { rangemode: "tozero" };
    await Plotly.react(figure.querySelector(".chart"), plot.series.map((series, at) => trace(series, at, plot)), {
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("soft") },
      separators: ".\u202f", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
      margin: { l: 48, r: 8, t: 8, b: 40 }, hovermode: "closest", showlegend: plot.series.length > 1,
      legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", font: { color: colour("ink") } },
      hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("ink") } },
      xaxis: axis(plot.x, scale), yaxis: axis(plot.y, scale),
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
    const { profiles } = JSON.parse(document.getElementById("content").textContent);
    for (const section of document.querySelectorAll("section[data-profile]")) {
      for (const figure of section.querySelectorAll("figure[data-plot]")) {
        await draw(figure, profiles[Number(section.dataset.profile)][Number(figure.dataset.plot)]);
      }
    }
  }

  const ready = unpack();
  ready.then(drawAll).catch(fail);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => ready.then(drawAll).catch(fail));
})();
