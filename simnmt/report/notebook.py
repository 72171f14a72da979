"""What a notebook shows: runs with their verdicts and figures, and their progress."""

from __future__ import annotations

import html
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from simnmt.base.errors import InputError
from simnmt.base.packages import named_if_missing
from simnmt.experiment.run import Progress
from simnmt.results import run as results

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Run(results.Run):
    """A finished run, just made or loaded: `rows` and `requests` as tables, `best()`, verdicts, and figures for a notebook.

    Example:
        >>> result = simnmt.run("@quickstart", requests=1000)  # doctest: +SKIP
        >>> result.rows[["network", "policy", "mean_latency_s"]]  # doctest: +SKIP
        >>> simnmt.load("results/quickstart-20260701-101500").figure("latency").show()  # doctest: +SKIP
    """

    @property
    def verdicts(self) -> list[dict[str, str]]:
        """For each place: what to deploy (`sentence`), how far it is from the oracle (`gap`), and why (`reason`)."""
        from simnmt.report.words import verdicts

        return verdicts(self)

    def document(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        return super().document() | {"verdicts": self.verdicts}

    def __repr__(self) -> str:
        """Return the verdicts, not the 150 kilobytes of numbers; `rows`, `differences` and `requests` hold these."""
        return "\n".join([f"Run({self.name!r}, seed {self.seed})", *(verdict["sentence"] for verdict in self.verdicts)])

    def _repr_html_(self) -> str:
        """Return the verdicts over the rows as HTML for a notebook; names are escaped."""
        sentences = "".join(f"<p>{html.escape(verdict['sentence'])}</p>" for verdict in self.verdicts)
        return sentences + self.rows.to_html(index=False, float_format="{:.4g}".format)

    @named_if_missing()
    def figure(self, name: str, *, workload: str | None = None, network: str | None = None, **options: str) -> Figure:
        """Return a figure of the page as a plotly figure, with the same data; a loaded run has all but `rtt` and `plane`.

        Args:
            name: such as `latency`, `parts` or `plane`; an unknown name lists the figures of this run.
            workload, network: the place shown; None: the first one that fits.
            options: the values of the figure's choices, such as `y="beyond"`; left out, those that the page shows first.

        Raises `InputError` for a name, a place or an option that does not exist.

        Example:
            >>> result = simnmt.run("@quickstart", requests=1000)  # doctest: +SKIP
            >>> result.figure("latency", network="cp2", y="beyond").show()  # doctest: +SKIP
        """
        from plotly.graph_objects import Figure

        from simnmt.report.charts import light_palette
        from simnmt.report.page import NOT_RECORDED, run_panels

        cells = [cell for cell in self.drawn_cells if cell.name.matches(workload, network)]
        if not cells:
            known = ", ".join(str(cell.name) for cell in self.drawn_cells)
            raise InputError(f"figure {name}: no results of that workload and network", remedy=f"this run has: {known}")
        panels = {panel.name: panel for panel in run_panels(self, cells[0])}
        if name not in panels:
            what = "a run directory does not hold its data" if name in NOT_RECORDED else "no such figure"
            raise InputError(f"figure {name}: {what}", remedy=f"the figures of this run are: {', '.join(sorted(panels))}")
        choices = {control.name: [option for option, _ in control.options] for control in panels[name].controls}
        for key, value in options.items():
            if value not in choices.get(key, ()):
                known = "; ".join(f"{control} = {', '.join(values)}" for control, values in choices.items()) or "none"
                raise InputError(f"figure {name}: no choice {key} = {value!r}", remedy=f"the choices are: {known}")
        shown = {control.name: control.shown for control in panels[name].controls} | options
        return Figure(panels[name].draw(*shown.values()).figure(light_palette()))


def notebook_progress() -> Progress | None:
    """Return a function that shows a progress bar in a notebook; None elsewhere."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if type(shell).__name__ != "ZMQInteractiveShell":
        return None
    display: Any = import_module("IPython.display")

    def bar(done: float, total: int) -> Any:
        return display.HTML(f'<progress value="{done:.3f}" max="{total}"></progress> {int(done)} of {total} units')

    shown = display.display(bar(0, 1), display_id=True)
    return lambda done, total: shown.update(bar(done, total))
