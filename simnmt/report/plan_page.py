"""A page with the pipelines of one plan and of what it is compared with; a picture without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from markupsafe import Markup

from simnmt.report.pipeline_chart import STYLE, drawn, pipeline_svg
from simnmt.report.typography import number, significant
from simnmt.sti.outlook import Outlook


def render_plan(outlook: Outlook, name: str, kind: str, model: str, warnings: Sequence[str] = ()) -> str:
    """Return the page as text, to be written as UTF-8; it opens from disk without a network.

    Args:
        outlook: the plan, with what it is compared with.
        name: of the profile.
        kind: how its costs are known.
        model: the model that is streamed, in words.
        warnings: what makes the profile doubtful.
    """
    plan = outlook.plan
    pipelines = [drawn("STI", outlook.timeline, plan.layer_indices)]
    for contestant in outlook.contestants[1:]:
        if contestant.plan is not None and contestant.timeline is not None:
            size = f"{contestant.plan.layers} x {contestant.plan.slices_per_layer}"
            pipelines.append(drawn(f"{contestant.name}, {size}", contestant.timeline, contestant.plan.layer_indices))
    style = Markup(files("simnmt.report").joinpath("page.css").read_text(encoding="utf-8")) + STYLE
    title = f"{plan.layers} x {plan.slices_per_layer} within {significant(1e3 * plan.deadline_s)} ms"
    facts = (
        f"{significant(1e3 * plan.latency_s)} ms predicted",
        f"{significant(1e3 * plan.stall_s)} ms of it waiting",
        f"{significant(outlook.memory.preload_bytes / 1e6)} of {significant(plan.preload_bytes / 1e6)} MB preloaded",
        f"{plan.length} tokens",
    )
    return str(
        Markup(
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
            "<style>{style}</style></head>"
            '<body><p class="eyebrow">streamed model, {kind}</p><h1>{title}</h1><p class="facts">{facts}</p>'
            '<p class="note">{name}: {model}</p>{warnings}{remarks}'
            '<section><h2>Disk and processor</h2>{svg}<p class="note">Numbers are layers; faded red: the processor waits; '
            "dashed: the deadline.</p></section><section><h2>Shards</h2>{table}</section></body></html>\n"
        ).format(
            title=title,
            style=style,
            kind=f"{kind}, doubtful" if warnings else kind,
            name=name,
            model=model,
            facts=Markup(" ").join(Markup("<span>{}</span>").format(fact) for fact in facts),
            warnings=Markup("").join(Markup('<p class="caution" data-warning>{}</p>').format(warning) for warning in warnings),
            remarks=Markup("").join(Markup('<p class="note">{}</p>').format(remark) for remark in outlook.remarks),
            svg=pipeline_svg("Pipelines", pipelines, plan.deadline_s),
            table=_table(outlook),
        )
    )


def _table(outlook: Outlook) -> Markup:
    head = Markup("").join(
        Markup("<th>{}</th>").format(cell) for cell in ("layer", "bits (* preloaded)", "budget, ms", "left, ms")
    )
    rows = []
    for layer in outlook.layers:
        bits = " ".join(f"{width}{'*' if held else ''}" for width, held in zip(layer.bits, layer.preloaded, strict=True))
        cells = (str(layer.layer), bits, number(1e3 * layer.granted_s, 2), number(1e3 * layer.left_s, 2))
        rows.append(Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(cell) for cell in cells)))
    return Markup('<div class="scroll"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>').format(
        head, Markup("\n").join(rows)
    )
