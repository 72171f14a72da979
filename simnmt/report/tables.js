// Tables sort by a column when its heading is clicked: ascending, descending, and back to the order of the scenario.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const groups = [...table.tBodies].map((body) => ({ body, rows: [...body.rows].filter((row) => !row.classList.contains("cell-name")) }));
  const key = (row, column) => {
    const cell = row.cells[column];
    if (!cell) return null;  // a cell that spans columns
    const text = cell.dataset.value ?? cell.textContent.trim();
    // The number that a cell begins with: smaller text may follow it.
    const value = text.replaceAll("\u202f", "").replaceAll(",", "").replace("\u2212", "-").match(/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?/);
    return text === "" || text === "\u2013" ? null : value ? Number(value[0]) : text.toLowerCase();
  };
  const compare = (one, other) => {
    if (one === null || other === null) return (one === null) - (other === null);
    return typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other));
  };
  const sort = (column, direction) => {
    for (const { body, rows } of groups) {
      const keyed = rows.map((row) => [key(row, column), row]);
      // What has no number stays at the end in either direction.
      if (direction) keyed.sort(([one], [other]) => compare(one, other) * (one === null || other === null ? 1 : direction));
      body.append(...keyed.map(([, row]) => row));
    }
    headings.forEach((heading, at) => {
      if (at === column && direction) heading.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else heading.removeAttribute("aria-sort");
    });
  };
  headings.forEach((heading, column) => {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "sort" });
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const now = heading.getAttribute("aria-sort");
      sort(column, now === "ascending" ? -1 : now === "descending" ? 0 : 1);
    });
  });
}
