// What all figures share. Colours come from the style sheet, so light, dark and print agree.
const DASHES = ["solid", "solid", "dot", "dash", "solid", "dashdot", "longdash", "longdashdot", "dot", "dash", "dashdot", "longdash"];
const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "x", "pentagon", "star", "triangle-down", "hexagon", "cross"];
const narrow = matchMedia("(max-width: 44rem)");
const coarse = matchMedia("(pointer: coarse)");
const figures = {};

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
// plotly reads a few tags and entities in its texts; names of the input are to be shown as they are.
const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const short = (text, most = 24) => plain(text.length > most ? `${text.slice(0, most - 1)}\u2026` : text);
const policyColour = (cell, policy) => colour(`policy-${cell.colours[policy]}`);
const policyName = (cell, policy) => short(cell.policies[policy], narrow.matches ? 16 : 24) + (cell.unstable[policy] ? ", unstable" : "");
const line = (cell, policy, extra) => ({
  type: "scatter", mode: "lines", name: policyName(cell, policy),
  line: { color: policyColour(cell, policy), dash: DASHES[cell.colours[policy]], width: 2 }, ...extra,
});
// Devices take the policies' colours: the first and the last those of "edge" and "cloud", the others what is left.
const BETWEEN = [4, 6, 5, 8, 7, 10, 9, 11, 3, 2];
const device = (cell, number) => {
  const shade = number === 0 ? 0 : number === cell.devices.length - 1 ? 1 : BETWEEN[(number - 1) % BETWEEN.length];
  return { name: plain(cell.devices[number]), color: colour(`policy-${shade}`), symbol: SYMBOLS[number % SYMBOLS.length] };
};
const codes = (text) => Array.from(text, (character) => character.charCodeAt(0) - 48);
// A formatter costs far more to make than to use, and every point has its words.
const formats = Array.from({ length: 6 }, (_, digits) => new Intl.NumberFormat("en", { maximumSignificantDigits: Math.max(digits, 1) }));
const grouped = (value, digits) => formats[digits].format(Number(value.toPrecision(digits))).replaceAll(",", "\u202f");
const duration = (ms) => (ms < 1e3 ? `${grouped(ms, 4)} ms` : `${grouped(ms / 1e3, 4)} s`);
const integers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const whole = (value) => integers.format(Math.round(value)).replaceAll(",", "\u202f");
// plotly's own labels on a short logarithmic axis are loose digits, and on a long one they overlap.
const logTicks = (values, labels = duration) => {
  const found = values.filter((value) => value > 0);
  const [least, most] = found.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, 0]);
  const digits = most > (narrow.matches ? 100 : 2000) * least ? [1] : narrow.matches || most > 30 * least ? [1, 2, 5] : [1, 2, 3, 5];
  const vals = [-3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9].flatMap((decade) => digits.map((digit) => digit * 10 ** decade));
  // On a phone six labels with units do not fit side by side.
  const every = narrow.matches && most > 1e4 * least ? 2 : 1;
  const labelled = (value) => (value < 1 && labels === duration ? `${grouped(value * 1e3, 2)} \u00b5s` : labels(value));
  const text = (value) => (digits.length > 1 ? grouped(value, 2) : Math.round(Math.log10(value)) % every ? "" : labelled(value));
  return { decades: digits.length === 1, axis: { type: "log", tickmode: "array", tickangle: 0, tickvals: vals, ticktext: vals.map(text) } };
};
const axis = (text, extra) => ({
  title: { text, standoff: 10 }, gridcolor: colour("line"), linecolor: colour("line"), tickcolor: colour("line"),
  zeroline: false, automargin: true, ...extra,
});
const legend = () => ({ orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", font: { color: colour("ink") } });
const listed = (words) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`);
const leftOut = (cell) => {
  const names = cell.policies.flatMap((name, policy) => (cell.unstable[policy] ? [`${name} (${cell.unstable[policy]})`] : []));
  return names.length ? ` Left out, for there is no mean to be known: ${listed(names)}.` : "";
};
