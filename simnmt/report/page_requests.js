// How long requests take, what that is made of, and where they were sent.
figures.latency = (cell, state) => {
  const { share, ms } = cell.latency;
  const beyond = state.y === "beyond";
  const kept = beyond ? share.map((_, at) => at).filter((at) => share[at] < 1) : share.map((_, at) => at);
  const says = beyond ? "%{y:.3~%} take longer than %{text}" : "%{y:.2%} within %{text}";
  const all = ms.flat();
  // Queues without end: nobody reads hundreds of thousands of milliseconds.
  const [unit, length] = all.some((value) => value >= 1e5) ? ["s", 1e3] : ["ms", 1];
  const log = state.x === "log" && logTicks(all);
  return {
    traces: cell.policies.map((_, policy) => line(cell, policy, {
      x: ms[policy].length ? kept.map((at) => ms[policy][at] / (log ? 1 : length)) : [],
      text: ms[policy].length ? kept.map((at) => duration(ms[policy][at])) : [],
      y: kept.map((at) => (beyond ? 1 - share[at] : share[at])),
      hovertemplate: `${says}<extra>%{fullData.name}</extra>`,
    })),
    layout: {
      xaxis: log ? axis(log.decades ? "latency of a request" : "latency of a request, ms", log.axis)
        : axis(`latency of a request, ${unit}`, { rangemode: "tozero" }),
      yaxis: beyond
        ? axis("share of requests slower", { type: "log", tickformat: "~%", dtick: 1 })
        : axis("share of requests answered", { tickformat: ".0%", range: [0, 1.01] }),
    },
  };
};

figures.parts = (cell, state) => {
  const rows = cell.parts[state.of];
  const shown = cell.policies.map((_, policy) => policy).filter((policy) => !cell.unstable[policy] && rows[policy][0] !== null);
  const totals = shown.map((policy) => rows[policy].reduce((sum, ms) => sum + ms, 0));
  const [unit, length] = totals.some((ms) => ms >= 1e5) ? ["s", 1e3] : ["ms", 1];
  const at = shown.map((_, place) => place);
  const names = shown.map((policy) => short(cell.policies[policy], narrow.matches ? 12 : 20));
  const words = { queue: "waiting", execution: "execution", transfer: "transfer" };
  const traces = cell.parts.names.map((part, number) => ({
    type: "bar", orientation: "h", name: words[part], x: shown.map((policy) => rows[policy][number] / length), y: at,
    marker: { color: colour(`part-${part}`) }, customdata: names, text: shown.map((policy) => duration(rows[policy][number])),
    textposition: "none", hovertemplate: `%{text} ${words[part]}<extra>%{customdata}</extra>`,
  }));
  traces.push({
    type: "scatter", mode: "text", x: totals.map((ms) => ms / length), y: at, text: totals.map((ms) => ` ${duration(ms)}`),
    textposition: "middle right", textfont: { color: colour("ink") }, showlegend: false, hoverinfo: "skip", cliponaxis: false,
  });
  const most = Math.max(...totals, 0) / length;
  const nothing = { text: "no policy has a mean to be known", x: 0.5, y: 0.5, xref: "paper", yref: "paper", showarrow: false };
  const of = { all: "Means over all requests.", p95: "Means over the slowest twentieth.", p99: "Means over the slowest hundredth." };
  return {
    traces,
    layout: {
      barmode: "stack", bargap: 0.35, legend: { ...legend(), traceorder: "normal" }, annotations: shown.length ? [] : [nothing],
      xaxis: axis(`latency, ${unit}`, { range: [0, (narrow.matches ? 1.4 : 1.18) * most || 1], visible: shown.length > 0 }),
      yaxis: axis("", { visible: shown.length > 0, tickmode: "array", tickvals: at, ticktext: names, range: [shown.length - 0.5, -0.5], ticks: "", gridcolor: "rgba(0,0,0,0)" }),
    },
    reading: of[state.of] + leftOut(cell),
  };
};

figures.share = (cell, state) => {
  const { src_len: lengths, percent, by_device: byDevice } = cell.share;
  const number = state.device === undefined || state.device === "away" ? null : Number(state.device);
  const values = number === null ? percent : byDevice[number];
  const to = number !== null ? plain(cell.devices[number]) : cell.devices.length === 2 ? plain(cell.devices[1]) : null;
  return {
    traces: cell.policies.map((_, policy) => line(cell, policy, {
      x: lengths, y: values[policy], mode: lengths.length > 1 ? "lines" : "markers",
      hovertemplate: "%{y:.1f} % of those near %{x:.0f} tokens<extra>%{fullData.name}</extra>",
    })),
    layout: {
      xaxis: axis("source length N, tokens", { rangemode: "tozero" }),
      yaxis: axis(to === null ? "sent away, %" : `sent to the ${to}, %`, { range: [-2, 102] }),
    },
  };
};
