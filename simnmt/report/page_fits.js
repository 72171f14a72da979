// What was fitted beside what it is to stand for: target length over source length, execution time over target length.
const band = (at, mean, sd, shade) => {
  // One polygon for each run of means whose deviation is known.
  const runs = [];
  at.forEach((_, place) => {
    if (sd[place] === null) runs.push([]);
    else (runs.length ? runs[runs.length - 1] : (runs.push([]), runs[0])).push(place);
  });
  const outline = (of) => runs.filter((run) => run.length > 1).flatMap((run) => [...run.map((place) => of(place, 1)), ...[...run].reverse().map((place) => of(place, -1)), null]);
  return {
    type: "scatter", mode: "lines", x: outline((place) => at[place]), y: outline((place, sign) => Math.max(mean[place] + sign * sd[place], 0)),
    line: { width: 0 }, fill: "toself", fillcolor: shade, opacity: 0.18, showlegend: false, hoverinfo: "skip",
  };
};
const spread = (sd, unit) => (sd === null ? "" : ` \u00b1 ${grouped(sd, 3)}${unit}`);

figures.lengths = (fit, state) => {
  const { src, pairs, mean, sd, line: [slope, offset], words } = fit.lengths;
  const ends = fit.lengths[state.range === "all" ? "all" : "near"];
  const shade = colour("policy-4");
  // No policy expects less than one token: the line has a bend where it would.
  const bend = (1 - offset) / slope;
  const along = [0, ...(bend > 0 && bend < ends[0] ? [bend] : []), ends[0]];
  return {
    traces: [
      band(src, mean, sd, shade),
      {
        type: "scatter", mode: "markers", name: "mean M", x: src, y: mean, marker: { size: 5, color: shade },
        text: src.map((_, place) => `${grouped(mean[place], 4)}${spread(sd[place], "")} of ${whole(pairs[place])} pair${pairs[place] === 1 ? "" : "s"}`),
        hovertemplate: "N %{x}: M %{text}<extra></extra>",
      },
      {
        type: "scatter", mode: "lines", name: "fitted line", x: along, y: along.map((length) => Math.max(slope * length + offset, 1)), hoverinfo: "skip",
        line: { color: colour("ink"), width: 1.6 },
      },
    ],
    layout: planeAxes(ends),
    reading: words,
  };
};

figures.execution = (fit, state) => {
  const numbers = fit.devices.map((_, number) => number).filter((number) => fit.execution[number] && (state.device === "all" || Number(state.device) === number));
  const range = state.range === "all" ? "all" : "near";
  const ends = [0, 1].map((axis) => Math.max(...numbers.map((number) => fit.execution[number][range][axis]), 1e-9));
  const [unit, length] = ends[1] >= 1e4 ? ["s", 1e3] : ["ms", 1];
  const traces = numbers.flatMap((number) => {
    const { tgt, requests, mean, sd, believed } = fit.execution[number];
    const { name, color, symbol } = device(fit, number);
    const scaled = (values) => values.map((value) => (value === null ? null : value / length));
    return [
      band(tgt, scaled(mean), scaled(sd), color),
      {
        type: "scatter", mode: "lines", name: "believed plane", legendrank: 2000, showlegend: number === numbers[numbers.length - 1], x: tgt, y: scaled(believed),
        line: { color: colour("ink"), width: 1.2 }, hoverinfo: "skip",
      },
      {
        type: "scatter", mode: "markers", name: short(fit.devices[number]), x: tgt, y: scaled(mean), marker: { size: 5, color, symbol },
        text: tgt.map((_, place) => `${grouped(mean[place], 4)}${spread(sd[place], "")} ms, plane ${grouped(believed[place], 4)} ms, ${whole(requests[place])} request${requests[place] === 1 ? "" : "s"}`),
        hovertemplate: `M %{x}: %{text}<extra>${name}</extra>`,
      },
    ];
  });
  const unused = fit.devices.filter((_, number) => !fit.execution[number] && (state.device === "all" || Number(state.device) === number));
  return {
    traces,
    layout: {
      xaxis: axis("target length M, tokens", { range: [0, ends[0]] }), yaxis: axis(`execution time, ${unit}`, { range: [0, ends[1] / length] }),
    },
    reading: [...numbers.map((number) => fit.execution[number].words), ...(unused.length ? [`Nobody sent anything to the ${listed(unused)}.`] : [])].join(" "),
  };
};
