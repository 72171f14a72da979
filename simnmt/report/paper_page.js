// Figures and tables of the pages on the fused kernel, the sharp decoder and the vocabulary: bars side by side, bars that add up, and lines.
const PATTERNS = ["", "/", "x", ".", "\\", "+", "-", "|"];
const HUES = [2, 4, 5, 1, 3, 0];
const chosen = (state) => Number(state.of ?? 0);
const shade = (place) => colour(`policy-${HUES[place % HUES.length]}`);
const marker = (place) => ({
  color: shade(place), pattern: { shape: PATTERNS[place % PATTERNS.length], fillmode: "overlay", fgcolor: colour("panel"), size: 7, solidity: 0.25 },
});
const labelled = (names) => names.map((name) => plain(name).replaceAll(", ", "<br>"));

// content.of[choice]: { names, unit, reading, bars: [{ name, values, low?, high? }] }
const grouped_bars = (stacked) => ({ of }, state) => {
  const { names, unit, reading, bars } = of[chosen(state)];
  const known = bars.flatMap(({ values, high }) => high ?? values).filter((value) => value !== null);
  const top = (narrow.matches ? 1.3 : 1.14) * Math.max(...known);
  return {
    traces: bars.map(({ name, values, low, high }, place) => ({
      type: "bar", name: short(name, 40), x: labelled(names), y: values, marker: marker(place),
      ...(high ? {
        error_y: {
          type: "data", symmetric: false, thickness: 1, width: 3, color: colour("ink"),
          array: high.map((value, at) => value - values[at]), arrayminus: low.map((value, at) => values[at] - value),
        },
      } : {}),
      ...(stacked ? {} : {
        text: values.map((value) => (value === null ? "" : grouped(value, 3))), textposition: "outside", textangle: narrow.matches ? -90 : 0, cliponaxis: false,
      }),
      hovertemplate: `%{y:.4~g} ${unit}<extra>%{fullData.name}</extra>`,
    })),
    layout: {
      barmode: stacked ? "stack" : "group", bargap: 0.18, xaxis: axis("", { tickangle: narrow.matches && names.length > 4 ? -45 : 0 }),
      yaxis: axis(unit, stacked ? { rangemode: "tozero" } : { range: [0, top] }),
    },
    reading,
  };
};
figures.bars = grouped_bars(false);
figures.stack = grouped_bars(true);

// content.of[choice]: { x: label, y: label, reading, linear?, span?, lines: [{ name, x, y, mode? }] }; axes are logarithmic unless linear,
// or linear is "y" and means that axis alone; span: what that one shows.
figures.lines = ({ of }, state) => {
  const { x, y, reading, linear, span, lines } = of[chosen(state)];
  const cell = { policies: lines.map(({ name }) => name), colours: lines.map((_, place) => HUES[place % HUES.length]), unstable: [] };
  const scale = (plain_one, values, digits, extra) => (plain_one ? extra : logTicks(values, (value) => grouped(value, digits)).axis);
  const upright = span ? { range: span } : { rangemode: "tozero" };
  return {
    traces: lines.map((each, place) => line(cell, place, {
      mode: each.mode ?? "lines+markers", name: short(each.name, 40), x: each.x, y: each.y, marker: { size: each.mode === "markers" ? 9 : 6, symbol: SYMBOLS[place] },
      line: { color: policyColour(cell, place), dash: DASHES[place], width: 1.8 }, hovertemplate: `%{y:.4~g} at %{x}<extra>%{fullData.name}</extra>`,
    })),
    layout: { xaxis: axis(x, scale(linear === true, lines.flatMap((each) => each.x), 2, {})), yaxis: axis(y, scale(linear, lines.flatMap((each) => each.y), 3, upright)) },
    reading,
  };
};

// What a cell is, where its column's head is out of sight: rows that share their first cells have fewer.
for (const table of document.querySelectorAll("table.figures, table.claims")) {
  const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent);
  for (const row of [...table.tBodies].flatMap((body) => [...body.rows])) {
    for (const cell of row.cells) cell.dataset.head = heads[heads.length - row.cells.length + cell.cellIndex];
  }
  table.dataset.cards = "yes";
}
