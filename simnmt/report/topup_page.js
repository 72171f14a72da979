// Figures of the page on top-up batching.
const chosen = (state) => Number(state.of ?? 0);
const PATTERNS = ["", "/", "x", ".", "\\", "+"];
const ways = (names) => ({ policies: names, colours: names.map((_, place) => [2, 4, 5, 1, 3, 0][place % 6]), unstable: [] });
const percentOf = (value) => `${grouped(value, 3)} %`;

figures.shares = ({ names, share, fullPublished }, state) => {
  const own = share[0][chosen(state)];
  const theirs = fullPublished[0][chosen(state)];
  return {
    traces: [{
      type: "bar", name: plain(names[chosen(state)]), showlegend: false, x: own.map((_, place) => place + 1), y: own, marker: { color: colour("policy-1") },
      hovertemplate: "%{x} active: %{y:.2f} % of the steps<extra></extra>",
    }],
    layout: { bargap: 0, xaxis: axis("active sentences", { range: [0, own.length + 1] }), yaxis: axis("share of the decode steps, %", { rangemode: "tozero" }) },
    reading: `Full in ${percentOf(own.at(-1))} of the steps${theirs === null ? "" : ` (published: ${percentOf(theirs)})`}.`,
  };
};

figures.few = ({ names, sets, upTo, fewPublished }, state) => {
  const own = upTo[chosen(state)];
  const cell = ways(names);
  const said = own.map((shares, place) => {
    const theirs = fewPublished[chosen(state)][place];
    return `${names[place]} ${percentOf(shares[6])}${theirs === null ? "" : ` (published: ${percentOf(theirs)})`}`;
  });
  return {
    traces: [
      ...own.map((shares, place) => line(cell, place, {
        x: shares.map((_, at) => at + 1), y: shares, line: { shape: "hv", width: 1.8, color: policyColour(cell, place), dash: DASHES[place] },
        hovertemplate: "%{y:.2f} % of the steps with at most %{x}<extra>%{fullData.name}</extra>",
      })),
      { type: "scatter", mode: "lines", name: "fewer than 8", x: [7, 7], y: [0, 100], hoverinfo: "skip", line: { color: colour("ink"), width: 1, dash: "dot" } },
    ],
    layout: { xaxis: axis("active sentences", { range: [0, own[0].length] }), yaxis: axis("share of the decode steps, %", { range: [0, 101] }) },
    reading: `${sets[chosen(state)]}, fewer than 8 active: ${said.join(", ")}.`,
  };
};

for (let place = 0; place < 2; place += 1) {
  figures[`speeds-${place}`] = ({ sets }, state) => {
    const { beams, bars } = sets[place][chosen(state)];
    const cell = ways(bars.map(({ name }) => name));
    // Room for the numbers above the bars.
    const top = (narrow.matches ? 1.25 : 1.12) * Math.max(...bars.flatMap(({ greatest }) => greatest));
    const labels = beams.map((beam) => plain(beam).replaceAll(", ", "<br>"));
    return {
      traces: bars.map(({ name, relative, least, greatest, rate, active }, way) => ({
        type: "bar", name: short(name, 34), x: labels, y: relative,
        marker: { color: policyColour(cell, way), pattern: { shape: PATTERNS[way], fillmode: "overlay", fgcolor: colour("panel"), size: 7, solidity: 0.25 } },
        error_y: {
          type: "data", symmetric: false, thickness: 1, width: 3, color: colour("ink"),
          array: greatest.map((value, at) => value - relative[at]), arrayminus: least.map((value, at) => relative[at] - value),
        },
        text: relative.map((value) => value.toFixed(2)), textposition: "outside", textangle: narrow.matches ? -90 : 0, cliponaxis: false,
        customdata: rate.map((value, at) => `${grouped(value, 4)} sentences a second, ${grouped(active[at], 3)} active on average`),
        hovertemplate: "%{y:.3f} times mini-batching<br>%{customdata}<extra>%{fullData.name}</extra>",
      })),
      layout: { barmode: "group", bargap: 0.18, xaxis: axis("", { tickangle: 0 }), yaxis: axis("speed over mini-batching", { range: [0, top] }) },
      reading: `Mini-batching: ${beams.map((beam, at) => `${grouped(bars[0].rate[at], 4)} sentences a second with ${beam}`).join("; ")}.`,
    };
  };
}

figures.online = (content, state) => {
  const { asked, lines } = content[chosen(state)];
  const cell = ways(lines.map(({ name }) => name));
  const all = lines.flatMap(({ rate }) => rate);
  const ends = [Math.min(...all), Math.max(...all)];
  const times = logTicks([...lines.flatMap(({ p95 }) => p95), ...asked]);
  const rates = logTicks(all, (value) => grouped(value, 2));
  return {
    traces: [
      ...lines.map(({ rate, p95, capacity }, way) => line(cell, way, {
        mode: "lines+markers", name: short(lines[way].name, 40), x: rate, y: p95, marker: { size: 5, symbol: SYMBOLS[way] },
        line: { color: policyColour(cell, way), dash: DASHES[way], width: 1.8 },
        customdata: rate.map((value) => `load ${grouped(value / capacity, 2)}`),
        hovertemplate: "p95 %{y:,.4~g} ms at %{x:.3~g} sentences a second, %{customdata}<extra>%{fullData.name}</extra>",
      })),
      ...asked.map((ms, at) => ({
        type: "scatter", mode: "lines", name: "asked for", showlegend: at === 0, x: ends, y: [ms, ms], line: { color: colour("ink"), width: 1.2, dash: "dot" },
        hovertemplate: "asked for: %{y:,.4~g} ms<extra></extra>",
      })),
    ],
    layout: {
      xaxis: axis("sentences a second", rates.axis), yaxis: axis(`p95 of latency${times.decades ? "" : ", ms"}`, times.axis),
    },
    reading: `Asked for: ${asked.map((ms) => duration(ms)).join(" and ")}. Above these lines a way to form batches does not hold.`,
  };
};
