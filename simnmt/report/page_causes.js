// What wrong beliefs cost, and what load does.
figures.gaps = (cell) => {
  const { removed, change_percent: change, low_percent: low, high_percent: high } = cell.gaps;
  const at = removed.map((_, place) => place);
  const sure = at.map((place) => (low[place] === null ? change[place] !== 0 : low[place] > 0 || high[place] < 0));
  const shade = at.map((place) => colour(!sure[place] ? "rtt" : change[place] < 0 ? "good" : "bad"));
  const ends = at.flatMap((place) => [low[place] ?? change[place], high[place] ?? change[place], 0]);
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const margin = 0.08 * (most - least) || 1;
  return {
    traces: [{
      type: "bar", orientation: "h", x: change, y: at, marker: { color: shade }, showlegend: false, customdata: removed.map(plain),
      error_x: {
        type: "data", symmetric: false, array: at.map((place) => (high[place] ?? change[place]) - change[place]),
        arrayminus: at.map((place) => change[place] - (low[place] ?? change[place])), color: colour("ink"), thickness: 1.4, width: 5,
      },
      hovertemplate: "%{x:+.2f} % without %{customdata}<extra></extra>",
    }],
    layout: {
      bargap: 0.45,
      xaxis: axis("change of the total time, %", { range: [least - margin, most + margin], zeroline: true, zerolinecolor: colour("ink") }),
      yaxis: axis("", { tickmode: "array", tickvals: at, ticktext: removed.map((text) => (narrow.matches ? plain(text).replace(" ", "<br>") : plain(text))), range: [removed.length - 0.5, -0.5], ticks: "", gridcolor: "rgba(0,0,0,0)" }),
    },
  };
};

figures.load = (sweep, state) => {
  const cell = { policies: sweep.policies, colours: sweep.colours, unstable: [] };
  const reading = unstableOverLoad(sweep);
  return state.of === "change" ? changeOverLoad(sweep, cell, reading) : latencyOverLoad(sweep, cell, state, reading);
};

const loadAxis = (sweep) => axis(`load of the busiest box under ${short(sweep.plain)}`, {});

function changeOverLoad(sweep, cell, reading) {
  return {
    traces: sweep.changes.map(({ policy, change_percent: change, low_percent: low, high_percent: high }) => line(cell, policy, {
      mode: "lines+markers", x: sweep.load, y: change, marker: { size: 5 },
      error_y: {
        type: "data", symmetric: false, thickness: 1.2, width: 4,
        array: change.map((value, at) => (high[at] ?? value) - value), arrayminus: change.map((value, at) => value - (low[at] ?? value)),
      },
      hovertemplate: "%{y:+.2f} % at load %{x:.2f}<extra>%{fullData.name}</extra>",
    })),
    layout: {
      xaxis: loadAxis(sweep),
      yaxis: axis(`total time against ${short(sweep.plain)}, %`, { zeroline: true, zerolinecolor: colour("ink") }),
    },
    reading: reading.replace("Left out, for there is no mean to be known:", "No mean to be known, so that the change is this run's:"),
  };
}

function latencyOverLoad(sweep, cell, state, reading) {
  const { ms, _low: low, _high: high } = sweep[state.of];
  const shown = sweep.policies.map((_, policy) => policy).filter((policy) => ms[policy].some((value) => value !== null));
  const all = shown.flatMap((policy) => [...ms[policy], ...high[policy], ...low[policy]]).filter((value) => value !== null && value > 0);
  const [unit, length] = all.some((value) => value >= 1e5) ? ["s", 1e3] : ["ms", 1];
  const log = state.y === "log" && logTicks(all);
  const scaled = (value) => (value === null ? null : value / (log ? 1 : length));
  // An interval that reaches below zero has no place on a logarithmic axis.
  const down = (value, end) => (value === null || end === null ? 0 : log && end <= 0 ? value * 0.999 : value - end);
  const word = { mean: "mean latency", p95: "p95 of the latency" }[state.of];
  // An interval that reaches far down must not flatten what it belongs to.
  const least = Math.max(Math.min(...all), Math.min(...shown.flatMap((policy) => ms[policy].filter((value) => value !== null))) / 4);
  const most = Math.max(...shown.flatMap((policy) => ms[policy].filter((value) => value !== null)));
  return {
    traces: shown.map((policy) => line(cell, policy, {
      mode: "lines+markers", x: sweep.load, y: ms[policy].map(scaled), connectgaps: false, marker: { size: 5 },
      error_y: {
        type: "data", symmetric: false, thickness: 1.2, width: 4,
        array: ms[policy].map((value, at) => scaled(value === null || high[policy][at] === null ? 0 : high[policy][at] - value)),
        arrayminus: ms[policy].map((value, at) => scaled(down(value, low[policy][at]))),
      },
      text: ms[policy].map((value, at) => (value === null ? "" : `${duration(value)}${low[policy][at] === null ? "" : ` [${grouped(low[policy][at], 4)}, ${grouped(high[policy][at], 4)}]`}`)),
      hovertemplate: "%{text} at load %{x:.2f}<extra>%{fullData.name}</extra>",
    })),
    layout: {
      xaxis: loadAxis(sweep),
      yaxis: log ? axis(log.decades ? word : `${word}, ms`, { ...log.axis, range: [Math.log10(Math.max(least, most / 1e5) / 1.1), Math.log10(1.15 * most)] })
        : axis(`${word}, ${unit}`, { rangemode: "tozero" }),
    },
    reading,
  };
}

function unstableOverLoad(sweep) {
  const said = sweep.policies.flatMap((name, policy) => {
    const loads = sweep.load.filter((_, at) => sweep.unstable[policy][at]).map((load) => load.toFixed(2));
    return loads.length ? [`${name} at load ${listed(loads)}`] : [];
  });
  return said.length ? `Left out, for there is no mean to be known: ${said.join("; ")}.` : "";
}
