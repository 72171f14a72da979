// Figures of the reproduction's page; those of a run's page draw what they can.
const named = (content, state, key) => content[key][Number(state.of ?? 0)];

// Figure 2a: measured means over target length, with the line through them.
figures.times = (content, state) => {
  const rows = content.times.filter((row) => row.workload === content.workloads[Number(state.of ?? 0)]);
  const cell = { devices: ["gateway", "cloud"] };
  const traces = rows.flatMap((row) => {
    const { color, symbol } = device(cell, row.device === "gateway" ? 0 : 1);
    const ends = [0, row.tgt_len.at(-1) * 1.03];
    return [
      band(row.tgt_len, row.mean_ms, row.sd_ms, color),
      {
        type: "scatter", mode: "lines", name: `line, ${row.device}`, x: ends, y: ends.map((at) => row.ms_per_token * at + row.ms_fixed),
        line: { color, width: 1.4, dash: "dot" }, hoverinfo: "skip",
      },
      {
        type: "scatter", mode: "markers", name: row.device, x: row.tgt_len, y: row.mean_ms, marker: { size: 7, color, symbol },
        text: row.mean_ms.map((mean, place) => `${grouped(mean, 4)}${spread(row.sd_ms[place], "")} ms`),
        hovertemplate: `M %{x}: %{text}<extra>${row.device}</extra>`,
      },
    ];
  });
  const said = rows.map((row) => {
    const theirs = row.published_r2 === null ? "" : ` (published for its devices: ${row.published_r2} and ${row.published_mse_ms2})`;
    // No fit is called perfect that is not, and no rounding error a figure.
    const r2 = row.r2 < 1 && row.r2 >= 0.99995 ? "above 0.9999" : row.r2.toFixed(4);
    const mse = row.mse_ms2 < 1e-4 ? "below 0.0001" : grouped(row.mse_ms2, 3);
    return `${row.device}, ${row.profile} (${row.kind}): ${grouped(row.ms_per_token, 4)} ms a target token, R\u00b2 of the means ${r2}, mean squared error ${mse} ms\u00b2${theirs}.`;
  });
  return {
    traces, reading: said.join(" "),
    layout: { xaxis: axis("target length M, tokens", { rangemode: "tozero" }), yaxis: axis("execution time, ms", { rangemode: "tozero" }) },
  };
};

// Without samples: what the replay's devices took, by page_fits.js.
figures.replayed = (content, state) => figures.execution(content, { range: state.range, device: "all" });

// Figure 2b.
figures.planes = (content, state) => {
  const cell = named(content, state, "cells");
  const drawn = figures.plane(cell, { range: state.range, policy: String(cell.policies.indexOf("cnmt")) });
  return { ...drawn, reading: `${cell.coefficients} ${drawn.reading}` };
};

// Figure 3.
for (let number = 0; number < 6; number += 1) {
  figures[`lengths-${number}`] = (content, state) => figures.lengths(content.tables[number], state);
}

// Figure 4.
figures.traces = (content, state) => {
  const { unit, series } = named(content, state, "traces");
  return {
    traces: series.map(({ name, time, ms }, place) => ({
      type: "scatter", mode: "lines", name, x: time, y: ms, line: { shape: "hv", width: 1.4, color: colour(`policy-${place ? 4 : 5}`), dash: place ? "solid" : "dot" },
      hovertemplate: `%{y:,.4~g} ms at %{x:.4~g} ${unit}<extra>%{fullData.name}</extra>`,
    })),
    layout: { xaxis: axis(`time on the trace, ${unit}`), yaxis: axis("round trip, ms", { rangemode: "tozero" }) },
    reading: series.map(({ name, mean_ms: mean, kind, source }) => `${name}: mean ${mean.toFixed(1)} ms, ${kind}; ${source}.`).join(" "),
  };
};
