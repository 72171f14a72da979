"""Notebooks as pages: text, code and stored outputs of each `docs/notebooks/*.ipynb`; the build executes none.

mkdocs-jupyter 0.26 would drop the figures, ask another host for two scripts, and leave links unchecked. Here a notebook becomes
a Markdown page, so that its links are checked and its words are found as those of other pages. Figures are stored as data of
plotly; one plotly.js, that of the installed package, draws them on all pages.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PLOTLY = "application/vnd.plotly.v1+json"
SCRIPT = "assets/plotly.min.js"
DRAW = """
document.querySelectorAll(".plotly-figure").forEach((place) => {
  const figure = JSON.parse(place.querySelector("script").textContent);
  place.textContent = "";
  Plotly.newPlot(place, figure.data, figure.layout, {responsive: true, displaylogo: false});
});
"""

_figures: dict[str, str] = {}
"""The place of each figure on its page, with the figure. It joins the finished page: parsing megabytes of data is slow."""


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add a page for each notebook, and plotly.js."""
    import plotly
    from mkdocs.structure.files import File

    _figures.clear()
    notebooks = sorted(Path(config.docs_dir, "notebooks").glob("*.ipynb"))
    for path in notebooks:
        text = page_of(json.loads(path.read_text(encoding="utf-8")), path.stem)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
    if _figures:
        script = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
        files.append(File.generated(config, SCRIPT, abs_src_path=str(script)))


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Put the figures into a page that has some, and the script that draws them at its end."""
    from mkdocs.utils import get_relative_url

    places = [place for place in _figures if place in output]
    for place in places:
        output = output.replace(place, _figures[place])
    if not places:
        return output
    scripts = f'<script src="{get_relative_url(SCRIPT, page.url)}"></script><script>{DRAW}</script>'
    return output.replace("</body>", f"{scripts}</body>")


def page_of(notebook: dict[str, Any], name: str) -> str:
    """Return a notebook as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code" and source:
            parts += [f"```python\n{source}\n```", *_outputs(cell["outputs"], name)]
    return "\n\n".join(parts) + "\n"


def _outputs(outputs: list[dict[str, Any]], name: str) -> Iterator[str]:
    for output in outputs:
        if output["output_type"] == "error":
            raise ValueError(f"docs/notebooks/{name}.ipynb: a cell is stored with {output['ename']} (execute it again)")
        data = {
            kind: content if isinstance(content, dict) else "".join(content) for kind, content in output.get("data", {}).items()
        }
        if PLOTLY in data:
            figure = json.dumps({key: data[PLOTLY][key] for key in ("data", "layout")}).replace("</", "<\\/")
            place = f'<div class="plotly-figure" id="{name}-figure-{len(_figures) + 1}"></div>'
            _figures[place] = place.replace("></", f'><script type="application/json">{figure}</script></')
            yield place
        elif "text/html" in data:
            yield f'<div class="notebook-output">{data["text/html"]}</div>'
        elif text := data.get("text/plain") or "".join(output.get("text", "")):
            yield f'<pre class="notebook-output">{html.escape(text)}</pre>'
