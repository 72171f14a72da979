// What the network did, and what waited and worked meanwhile.
figures.rtt = (cell, state) => {
  const { unit, time, ms, estimate, used } = cell.rtt;
  const span = used && state.x === "used" ? used : null;
  // plotly fits a vertical axis to all points, of which a zoomed figure shows few: the last before the span holds into it.
  const seen = (times, values) => values.filter((value, at) => value !== null && (!span || (times[at] <= span[1] && (times[at + 1] ?? Infinity) >= span[0])));
  const shown = [...seen(time, ms), ...(estimate ? seen(estimate.time, estimate.ms) : [])];
  const most = shown.reduce((high, value) => Math.max(high, value), 0);
  const least = shown.reduce((low, value) => Math.min(low, value), most);
  const log = state.y === "log" && logTicks(shown);
  const fitted = !span || !(most > 0) ? {} : { range: log ? [Math.log10(least / 1.05), Math.log10(most * 1.05)] : [0, most * 1.05] };
  const margin = span ? 0.01 * (span[1] - span[0]) : 0;
  const says = `%{y:,.4~g} ms at %{x:.4~g} ${unit}`;
  const step = { shape: "hv", width: 1.2 };
  const traces = [{
    type: "scatter", mode: "lines", name: "RTT", x: time, y: ms, line: { ...step, color: colour("rtt") },
    fill: state.y === "log" ? "none" : "tozeroy", fillcolor: colour("rtt-wash"),
    hovertemplate: `${says}<extra>RTT</extra>`,
  }];
  if (estimate) {
    const name = plain(cell.policies[estimate.policy]);
    traces.push(line(cell, estimate.policy, {
      x: estimate.time, y: estimate.ms, name: `estimate of ${name}`, mode: estimate.time.length > 1 ? "lines" : "markers",
      line: { ...step, color: policyColour(cell, estimate.policy) },
      hovertemplate: `${says}<extra>estimate of ${name}</extra>`,
    }));
  }
  return {
    traces,
    layout: {
      xaxis: axis(`time on the trace, ${unit}`, span ? { range: [span[0] - margin, span[1] + margin] } : { autorange: true }),
      yaxis: log ? axis(log.decades ? "round trip" : "round trip, ms", { ...log.axis, ...fitted })
        : axis("round trip, ms", { rangemode: "tozero", ...fitted }),
    },
  };
};

const edgesOf = (spans) => [spans[0][0], ...spans.flatMap(([begin, end, count]) => Array.from({ length: count }, (_, at) => begin + ((at + 1) * (end - begin)) / count))];

figures.timeline = (cell, state) => {
  const { unit, spans, waiting, busy } = cell.timeline;
  const number = Number(state.device);
  const backlog = state.of === "waiting";
  const values = (backlog ? waiting : busy).map((of) => of[number]);
  const log = backlog && state.y === "log" && logTicks(values.flatMap((of) => of ?? []).filter((value) => value >= 0.01), (value) => grouped(value, 2));
  const says = backlog ? "%{y:,.4~g} waiting" : "%{y:.1f} % busy";
  const used = cell.policies.map((_, policy) => policy).filter((policy) => values[policy]);
  const idle = cell.policies.filter((_, policy) => !values[policy]);
  const last = Math.max(...spans.map((of) => of[0][1]));
  const end = Math.max(...spans.map((of) => of[of.length - 1][1]));
  const range = state.x === "all" ? [0, end] : [0, last];
  return {
    traces: used.map((policy) => line(cell, policy, {
      x: edgesOf(spans[policy]), y: [...values[policy], values[policy].at(-1)].map((value) => (log && value < 0.01 ? null : value)),
      line: { color: policyColour(cell, policy), width: 1.4, shape: "hv" },
      hovertemplate: `${says} at %{x:.4~g} ${unit}<extra>%{fullData.name}</extra>`,
    })),
    layout: {
      xaxis: axis(`time of the run, ${unit}`, { range }),
      yaxis: log ? axis("requests waiting", log.axis)
        : backlog ? axis("requests waiting", { rangemode: "tozero" }) : axis("workers busy, %", { range: [0, 102] }),
    },
    reading: (backlog ? `Requests that wait at the ${cell.devices[number]}, all of its boxes together.` : `Share of the ${cell.devices[number]}'s workers that execute something.`)
      + (idle.length ? ` Nothing is ${backlog ? "waiting" : "executed"} there under ${listed(idle)}.` : ""),
  };
};
