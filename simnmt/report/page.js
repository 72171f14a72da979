"use strict";
// Draws the figures of a cell when its section opens. Colours come from the style sheet, so light, dark and print agree.
(() => {
  const DASHES = ["solid", "solid", "dot", "dash", "solid", "dashdot", "longdash", "longdashdot"];
  const drawn = new Set();
  const narrow = matchMedia("(max-width: 44rem)");
  const coarse = matchMedia("(pointer: coarse)");

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  // plotly reads a few tags and entities in its texts; names of the input are to be shown as they are.
  const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const line = (cell, policy, extra) => ({
    type: "scatter", mode: "lines", name: plain(cell.policies[policy]),
    line: { color: colour(`policy-${cell.colours[policy]}`), dash: DASHES[cell.colours[policy]], width: 2 }, ...extra,
  });
  const grouped = (value, digits) => Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits }).replaceAll(",", "\u202f");
  const duration = (ms) => (ms < 1e3 ? `${grouped(ms, 4)} ms` : `${grouped(ms / 1e3, 4)} s`);
  // plotly's own labels on a short logarithmic axis are loose digits, and on a long one they overlap.
  const logTicks = (values) => {
    const found = values.filter((value) => value > 0);
    const [least, most] = found.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, 0]);
    const digits = most > (narrow.matches ? 100 : 2000) * least ? [1] : narrow.matches || most > 30 * least ? [1, 2, 5] : [1, 2, 3, 5];
    const vals = [-3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9].flatMap((decade) => digits.map((digit) => digit * 10 ** decade));
    // On a phone six labels with units do not fit side by side.
    const every = narrow.matches && most > 1e4 * least ? 2 : 1;
    const labelled = (value) => (value < 1 ? `${grouped(value * 1e3, 2)} \u00b5s` : duration(value));
    const text = (value) => (digits.length > 1 ? grouped(value, 2) : Math.round(Math.log10(value)) % every ? "" : labelled(value));
    return { decades: digits.length === 1, axis: { type: "log", tickmode: "array", tickangle: 0, tickvals: vals, ticktext: vals.map(text) } };
  };
  const axis = (text, extra) => ({
    title: { text, standoff: 10 }, gridcolor: colour("line"), linecolor: colour("line"), tickcolor: colour("line"),
    zeroline: false, automargin: true, ...extra,
  });

  const figures = {
    latency(cell, state) {
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
    },

    share(cell) {
      const { src_len: lengths, percent } = cell.share;
      return {
        traces: cell.policies.map((_, policy) => line(cell, policy, {
          x: lengths, y: percent[policy], mode: lengths.length > 1 ? "lines" : "markers",
          hovertemplate: "%{y:.1f} % of those near %{x:.0f} tokens<extra>%{fullData.name}</extra>",
        })),
        layout: {
          xaxis: axis("source length N, tokens", { rangemode: "tozero" }),
          yaxis: axis("sent to the cloud, %", { range: [-2, 102] }),
        },
      };
    },

    rtt(cell, state) {
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
          line: { ...step, color: colour(`policy-${cell.colours[estimate.policy]}`) },
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
    },

    plane(cell, state) {
      const data = cell.plane;
      const policy = Number(state.policy);
      const targets = data.targets[policy];
      const assumed = data.assumed[policy];
      const ends = state.range === "all" ? [data.src_end, data.tgt_end] : data.near;
      const outside = data.src_len.filter((src, index) => src > ends[0] || data.tgt_len[index] > ends[1]).length;
      // One trace for both devices, in the order of the requests: with two, the later would hide the earlier.
      const devices = [["gateway", colour("policy-0"), "circle"], ["cloud", colour("policy-1"), "diamond"]];
      const went = [...targets].map((target) => devices[target === "0" ? 0 : 1]);
      const marks = { type: "scatter", mode: "markers", opacity: 1 };
      const look = { size: narrow.matches ? 5 : 6, opacity: 0.6, line: { width: 0 } };
      const traces = [{
        ...marks, name: "requests", x: data.src_len, y: data.tgt_len, text: went.map(([name]) => name), showlegend: false,
        marker: { ...look, color: went.map(([, shade]) => shade), symbol: went.map(([, , symbol]) => symbol) },
        hovertemplate: "N %{x}, M %{y}<extra>%{text}</extra>",
      }];
      for (const [name, color, symbol] of devices) {
        traces.push({ ...marks, name, x: [null], y: [null], marker: { ...look, color, symbol } });
      }
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
          line: { color: colour(`policy-${cell.colours[policy]}`), dash: "dash", width: 2.4 },
          hovertemplate: "N %{x}, M assumed %{y}<extra></extra>",
        }));
        assumed.turns_at.forEach((at) => traces.push({
          type: "scatter", mode: "lines", x: [at, at], y: [0, data.tgt_end], showlegend: false, hoverinfo: "skip",
          line: { color: colour(`policy-${cell.colours[policy]}`), dash: "dot", width: 1.4 },
        }));
      }
      return {
        traces,
        layout: {
          xaxis: axis("source length N, tokens", { range: [0, ends[0]] }),
          yaxis: axis("target length M, tokens", { range: [0, ends[1]] }),
        },
        reading: readingOfPlane(data, cell.policies[policy], assumed)
          + (outside ? ` Beyond the axes: ${outside} of the requests drawn.` : ""),
      };
    },
  };

  function readingOfPlane(data, policy, assumed) {
    const border = data.border
      ? `Solid line: both devices are believed equally fast at the mean RTT of ${data.mean_ms.toFixed(1)} ms`
        + (data.low_ms < data.high_ms ? `; band: from the 10th to the 90th percentile, ${data.low_ms.toFixed(1)} to ${data.high_ms.toFixed(1)} ms. ` : ". ")
      : "No border: which device is believed faster does not depend on the lengths. ";
    if (!assumed) return `${border}${policy} goes by no assumed length.`;
    const turns = assumed.turns_at.map((at) => at.toFixed(1)).join(" and ");
    return border + (turns
      ? `${policy} cannot see M: it takes the dashed curve for it, so at the mean RTT its choice turns at N = ${turns} (dotted).`
      : `${policy} cannot see M: it takes the dashed curve for it, which does not cross the solid line, so at the mean RTT it always chooses alike.`);
  }

  function stateOf(figure) {
    const pressed = [...figure.querySelectorAll('button[aria-pressed="true"]')];
    return Object.fromEntries(pressed.map((button) => [button.dataset.option, button.dataset.value]));
  }

  async function draw(figure, cell) {
    const { traces, layout, reading } = figures[figure.dataset.figure](cell, stateOf(figure));
    const chart = figure.querySelector(".chart");
    const words = figure.querySelector("[data-reading]");
    if (words) words.textContent = reading;
    await Plotly.react(chart, traces, {
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("soft") },
      separators: ".\u202f", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
      margin: { l: 48, r: 8, t: 8, b: 40 }, hovermode: "closest", dragmode: coarse.matches ? false : "zoom", showlegend: true,
      legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", font: { color: colour("ink") } },
      hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("ink") } },
      uirevision: JSON.stringify(stateOf(figure)),
      ...layout,
    }, { displayModeBar: false, responsive: true });
    figure.dataset.drawn = "yes";
  }

  function fail(error) {
    const place = document.getElementById("failure");
    place.textContent = `The figures could not be drawn (${error.message}). They need a browser of 2023 or later.`;
    place.hidden = false;
  }

  async function unpack() {
    const packed = atob(document.getElementById("plotly-packed").textContent);
    const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
    const script = document.createElement("script");
    script.textContent = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    document.head.append(script);
  }

  const ready = unpack();
  ready.catch(fail);

  async function open(section) {
    section.dataset.opened = "yes";
    await ready;
    const cell = JSON.parse(document.getElementById(`${section.id}-data`).textContent);
    for (const figure of section.querySelectorAll("figure[data-figure]")) {
      await draw(figure, cell);
      drawn.add({ figure, cell });
      figure.addEventListener("click", (event) => {
        const button = event.target.closest("button[data-option]");
        if (!button) return;
        for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
        draw(figure, cell).catch(fail);
      });
    }
  }

  // A closed section has no size to draw in, so it waits until it is opened again.
  async function redraw(section) {
    for (const { figure, cell } of drawn) {
      if (!figure.closest("details").open || (section && !section.contains(figure))) continue;
      await draw(figure, cell);
      await Plotly.Plots.resize(figure.querySelector(".chart"));
    }
  }

  for (const section of document.querySelectorAll("details.cell")) {
    const start = () => {
      if (section.open) (section.dataset.opened ? redraw(section) : open(section)).catch(fail);
    };
    section.addEventListener("toggle", start);
    start();
  }

  const redrawAll = () => redraw().catch(fail);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  narrow.addEventListener("change", redrawAll);
  addEventListener("beforeprint", () => { document.documentElement.dataset.theme = "light"; redrawAll(); });
  addEventListener("afterprint", () => { delete document.documentElement.dataset.theme; redrawAll(); });
})();
