// Batches: how many sentences are active, step by step and in all.
const batchesAt = (cell, state) => cell.batches[Number(state.device ?? 0)];

figures.active = (cell, state) => {
  const { policies } = batchesAt(cell, state);
  const number = Number(state.policy);
  const drawn = policies[number];
  const name = policyName(cell, number);
  if (!drawn) return { traces: [], layout: { xaxis: axis("decode step"), yaxis: axis("active sentences") }, reading: `Nothing is decoded there under ${cell.policies[number]}.` };
  const last = drawn.step.at(-1);
  return {
    traces: [
      line(cell, number, {
        name, x: drawn.step, y: drawn.active, line: { color: policyColour(cell, number), width: 1.4, shape: "hv" }, fill: "tozeroy",
        fillcolor: colour("rtt-wash"), hovertemplate: "%{y} active from step %{x} on<extra></extra>",
      }),
      {
        type: "scatter", mode: "lines", name: "largest batch", x: [0, last], y: [drawn.size, drawn.size], hoverinfo: "skip",
        line: { color: colour("ink"), width: 1.2, dash: "dot" },
      },
    ],
    layout: {
      xaxis: axis("decode step of the first server", { range: [0, last] }),
      yaxis: axis("active sentences", { range: [0, 1.05 * drawn.size] }),
    },
    reading: `The first ${whole(drawn.step.length)} changes of the batch. In all: ${drawn.words}`,
  };
};

figures.sizes = (cell, state) => {
  const { policies } = batchesAt(cell, state);
  const of = state.of === "time" ? "time" : "steps";
  const used = policies.map((_, number) => number).filter((number) => policies[number]);
  const unused = policies.map((_, number) => number).filter((number) => !policies[number]);
  const traces = used.map((number) => {
    const { least, most } = policies[number];
    const drawn = policies[number][of];
    return line(cell, number, {
      x: least, y: drawn, mode: "lines+markers", marker: { size: 6, symbol: SYMBOLS[number % SYMBOLS.length] },
      line: { color: policyColour(cell, number), dash: DASHES[cell.colours[number]], width: 1.6 },
      text: least.map((from, place) => (from === most[place] ? `${from}` : `${from} to ${most[place]}`)),
      hovertemplate: "%{text} active: %{y:.2f} %<extra>%{fullData.name}</extra>",
    });
  });
  return {
    traces,
    layout: {
      xaxis: axis("active sentences", { rangemode: "tozero" }),
      yaxis: axis(of === "time" ? "share of the decoding time, %" : "share of the decode steps, %", { rangemode: "tozero" }),
    },
    reading: unused.length ? `Nothing is decoded there under ${listed(unused.map((number) => cell.policies[number]))}.` : "",
  };
};
