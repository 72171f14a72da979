// The plane of source and target length: who sent what where, and where that was a mistake.
const planeAxes = (ends) => ({
  xaxis: axis("source length N, tokens", { range: [0, ends[0]] }), yaxis: axis("target length M, tokens", { range: [0, ends[1]] }),
});

const regions = (cell, near, ends) => {
  const map = codes(cell.plane.regions[near ? "near" : "all"]);
  const { cells } = cell.plane.regions;
  const most = Math.max(cell.devices.length - 1, 1);
  const middle = (end) => Array.from({ length: cells }, (_, at) => ((at + 0.5) * end) / cells);
  return {
    type: "heatmap", x: middle(ends[0]), y: middle(ends[1]), showscale: false, hoverinfo: "skip", opacity: 0.28, zmin: -0.5, zmax: most + 0.5,
    z: Array.from({ length: cells }, (_, row) => map.slice(row * cells, (row + 1) * cells)),
    colorscale: Array.from({ length: most + 1 }, (_, number) => number).flatMap((number) => {
      const { color } = device(cell, Math.min(number, cell.devices.length - 1));
      return [[number / (most + 1), color], [(number + 1) / (most + 1), color]];
    }),
  };
};

figures.plane = (cell, state) => {
  const data = cell.plane;
  const policy = Number(state.policy);
  const targets = codes(data.targets[policy]);
  const assumed = data.assumed[policy];
  const ends = state.range === "all" ? [data.src_end, data.tgt_end] : data.near;
  const outside = data.src_len.filter((src, index) => src > ends[0] || data.tgt_len[index] > ends[1]).length;
  // One trace for all devices, in the order of the requests: with one each, the later would hide the earlier.
  const devices = cell.devices.map((_, number) => device(cell, number));
  const went = targets.map((target) => devices[target]);
  const marks = { type: "scatter", mode: "markers", opacity: 1 };
  const look = { size: narrow.matches ? 5 : 6, opacity: 0.6, line: { width: 0 } };
  const traces = [{
    ...marks, name: "requests", x: data.src_len, y: data.tgt_len, text: went.map(({ name }) => name), showlegend: false,
    marker: { ...look, color: went.map(({ color }) => color), symbol: went.map(({ symbol }) => symbol) },
    hovertemplate: "N %{x}, M %{y}<extra>%{text}</extra>",
  }];
  const believed = new Set(data.regions ? codes(data.regions.near + data.regions.all) : []);
  devices.forEach(({ name, color, symbol }, number) => {
    const absent = cell.devices.length > 2 && !targets.includes(number) && !believed.has(number);
    if (!absent) traces.push({ ...marks, name, x: [null], y: [null], marker: { ...look, color, symbol } });
  });
  if (data.regions) traces.unshift(regions(cell, state.range !== "all", ends));
  if (data.border_low && data.border_high && data.low_ms < data.high_ms) {
    traces.unshift({
      type: "scatter", mode: "lines", name: "border, p10 to p90", showlegend: false, hoverinfo: "skip", fill: "toself",
      x: [...data.border_low.src, ...[...data.border_high.src].reverse()],
      y: [...data.border_low.tgt, ...[...data.border_high.tgt].reverse()],
      line: { width: 0 }, fillcolor: colour("rtt"), opacity: 0.22,
    });
  }
  if (data.border) {
    traces.push({
      type: "scatter", mode: "lines", name: "equally fast", x: data.border.src, y: data.border.tgt,
      line: { color: colour("ink"), width: 2 }, hoverinfo: "skip",
    });
  }
  if (assumed) {
    traces.push(line(cell, policy, {
      x: assumed.src, y: assumed.tgt, name: "assumed M",
      line: { color: policyColour(cell, policy), dash: "dash", width: 2.4 },
      hovertemplate: "N %{x}, M assumed %{y}<extra></extra>",
    }));
    assumed.turns_at.forEach((at) => traces.push({
      type: "scatter", mode: "lines", x: [at, at], y: [0, data.tgt_end], showlegend: false, hoverinfo: "skip",
      line: { color: policyColour(cell, policy), dash: "dot", width: 1.4 },
    }));
  }
  return {
    traces, layout: planeAxes(ends),
    reading: readingOfPlane(data, cell.policies[policy], assumed) + (outside ? ` Beyond the axes: ${outside} of the requests drawn.` : ""),
  };
};

function readingOfPlane(data, policy, assumed) {
  const border = data.border
    ? `Solid line: both devices are believed equally fast at the mean RTT of ${data.mean_ms.toFixed(1)} ms`
      + (data.low_ms < data.high_ms ? `; band: from the 10th to the 90th percentile, ${data.low_ms.toFixed(1)} to ${data.high_ms.toFixed(1)} ms. ` : ". ")
    : data.regions ? "Shaded: the device that is believed fastest at the mean transfer times, queues left out. "
      : "No border: which device is believed faster does not depend on the lengths. ";
  if (!assumed) return `${border}${policy} goes by no assumed length.`;
  const turns = listed(assumed.turns_at.map((at) => at.toFixed(1)));
  const mean = data.regions ? "at these transfer times" : "at the mean RTT";
  if (turns) return `${border}${policy} cannot see M: it takes the dashed curve for it, so ${mean} its choice turns at N = ${turns} (dotted).`;
  const never = data.regions ? "which stays in one region" : "which does not cross the solid line";
  return data.border || data.regions
    ? `${border}${policy} cannot see M: it takes the dashed curve for it, ${never}, so ${mean} it always chooses alike.`
    : `${border}${policy} cannot see M: it takes the dashed curve for it.`;
}

figures.misroutes = (cell, state) => {
  const everyone = state.policy === "all";
  const chosen = everyone ? cell.policies.map((_, policy) => policy) : [Number(state.policy)];
  const ends = state.range === "all" ? [cell.plane.src_end, cell.plane.tgt_end] : cell.plane.near;
  const lost = chosen.flatMap((policy) => cell.misroutes[policy].lost_ms);
  const most = [...lost].sort((a, b) => a - b)[Math.floor(0.98 * (lost.length - 1))] ?? 1;
  const scale = { cmin: 0, cmax: most, colorscale: [[0, colour("lost-0")], [0.5, colour("lost-1")], [1, colour("lost-2")]] };
  const bar = { title: { text: "lost, ms", side: "right" }, thickness: 10, outlinewidth: 0, tickfont: { color: colour("soft") } };
  const traces = chosen.map((policy, place) => {
    const found = cell.misroutes[policy];
    const went = codes(found.targets).map((target) => plain(cell.devices[target]));
    const best = codes(found.best).map((target) => plain(cell.devices[target] ?? "fastest"));
    const byLoss = state.colour === "lost" ? { color: found.lost_ms, ...scale, showscale: place === 0, colorbar: bar } : { color: policyColour(cell, policy) };
    return {
      type: "scatter", mode: "markers", name: policyName(cell, policy), x: found.src_len, y: found.tgt_len, opacity: 1, showlegend: state.colour !== "lost",
      text: went.map((name, at) => `went to the ${name}, ${duration(found.lost_ms[at])} slower than the ${best[at]}`),
      marker: { size: narrow.matches ? 5 : 6, opacity: 0.55, line: { width: 0 }, symbol: SYMBOLS[cell.colours[policy] % SYMBOLS.length], ...byLoss },
      hovertemplate: "N %{x}, M %{y}: %{text}<extra>%{fullData.name}</extra>",
    };
  });
  const layout = planeAxes(ends);
  if (!lost.length) {
    layout.annotations = [{ text: "no misrouted request", x: 0.5, y: 0.5, xref: "paper", yref: "paper", showarrow: false, font: { size: 15, color: colour("soft") } }];
  }
  return { traces, layout, reading: readingOfMisroutes(cell, chosen) };
};

function readingOfMisroutes(cell, chosen) {
  const said = chosen.map((policy) => {
    const { count, judged, lost_s: seconds } = cell.misroutes[policy];
    const requests = judged ?? cell.requests;
    if (!count) return `${cell.policies[policy]} nothing`;
    const share = (100 * count) / requests;
    if (chosen.length > 1) return `${cell.policies[policy]} ${share.toFixed(1)} % (${duration((1e3 * seconds) / count)} each)`;
    return `${cell.policies[policy]} misrouted ${whole(count)} of ${whole(requests)} ${judged !== null && judged < cell.requests ? "judged " : ""}requests (${share.toFixed(1)} %), which lost ${duration((1e3 * seconds) / count)} each and ${duration(1e3 * seconds)} in all`;
  });
  return `${chosen.length > 1 ? "Misrouted: " : ""}${said.join(", ")}.`;
}
