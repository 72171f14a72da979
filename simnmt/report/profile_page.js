"use strict";
// Draws the plots of each profile.
(() => {
  const { axis, colour, drawPage } = plainPlots;

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

  drawPage((figure, section, { profiles }) => {
    const plot = profiles[Number(section.dataset.profile)][Number(figure.dataset.plot)];
    const scale = plot.log ? { type: "log" } : { rangemode: "tozero" };
    return {
      traces: plot.series.map((series, at) => trace(series, at, plot)),
      layout: { xaxis: axis(plot.x, scale), yaxis: axis(plot.y, scale), showlegend: plot.series.length > 1 },
    };
  });
})();
