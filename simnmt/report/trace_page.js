"use strict";
// Draws the plots of each series.
(() => {
  const { axis, colour, drawPage } = plainPlots;

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

  drawPage((figure, section, { series }) => plots[figure.dataset.plot](series[Number(section.dataset.series)]));
})();
