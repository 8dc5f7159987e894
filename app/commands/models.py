"""The command `models`: list the models of this machine, fetch one, show one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from .shared.output import print_json, print_note, table

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec
    from decodescope.engine.session.get_model import DownloadPlan


def models(args: argparse.Namespace) -> int:
    """Print the models that need no download: those that were fetched by name, then the shipped ones."""
    from decodescope.engine.model.fetched.catalogue import fetchable_models, is_fetched
    from decodescope.engine.session.get_model import fetched_rows
    from decodescope.engine.session.load import shipped_models as shipped

    listed = [{**x, "path": str(x["path"])} for x in (*fetched_rows(), *shipped())]
    if args.json:
        offered = [
            {
                "name": x.name,
                "licence": x.licence,
                "download_bytes": x.download_bytes,
                "stored_bytes": x.bytes,
                "fetched": is_fetched(x),
            }
            for x in fetchable_models()
        ]
        print_json({"models": listed, "fetchable": offered})
        return 0
    rows = [[x["name"], f"{x['params'] / 1e6:.1f} M", f"{x['context']:,} tokens", x["path"]] for x in listed]
    print(table(("name", "parameters", "context", "path"), rows))
    for x in fetchable_models():
        if not is_fetched(x):
            size = _megabytes(x.download_bytes)
            print(
                f"\n{x.title} {x.about}: `decodescope models get {x.name}` fetches it ({size}, {x.licence})."
            )
    return 0


def get(args: argparse.Namespace) -> int:
    """Fetch a model, after saying its size and licence; a download that was interrupted goes on where it ended."""
    from decodescope.engine.core.progress import Progress
    from decodescope.engine.model.fetched.catalogue import find_fetchable
    from decodescope.engine.session.get_model import get_model, plan_download

    plan = plan_download(args.name)
    if not args.json:
        print_note(_plan_text(plan))
    shown = [("", -1)]
    with Progress("looking for it", plan.download_bytes / 1e6, "MB") as progress:

        def report(phase: str, done: int, total: int) -> None:
            now = (phase, done // 1_000_000)
            if now != shown[-1]:  # a bar that is drawn for each piece takes longer than the pieces
                shown[:] = [now]
                progress.at(now[1], round(total / 1e6), phase)

        try:
            plan = get_model(args.name, report)
        except KeyboardInterrupt:
            print_note("Stopped. What was fetched is kept: the same command goes on from there.")
            raise
    if args.json:
        print_json(
            {"name": plan.name, "licence": plan.licence, "place": str(plan.place), "bytes": plan.stored_bytes}
        )
        return 0
    chat = " --chat" if find_fetchable(plan.name) else ""
    print(f"It is there: decodescope run --model {plan.name}{chat} --prompt 'What is the capital of France?'")
    return 0


def show(args: argparse.Namespace) -> int:
    """Print the shape of a model that is on this machine, or what fetching it takes."""
    from decodescope.engine.core.paths import expand_path, is_folder
    from decodescope.engine.model.checkpoint.folder import LoadError
    from decodescope.engine.model.fetched.catalogue import find_fetchable
    from decodescope.engine.model.heads.describe import is_head_folder
    from decodescope.engine.session.get_model import describe_model, plan_download
    from decodescope.engine.session.load import HUB_FILE, HUB_ID

    if is_folder(args.name.rpartition("@")[0] or args.name) and is_head_folder(expand_path(args.name)):
        return _show_heads(args)
    plan: DownloadPlan | None = None
    if find_fetchable(args.name) or HUB_FILE.fullmatch(args.name) or HUB_ID.fullmatch(args.name):
        try:
            plan = plan_download(args.name)
        except LoadError:  # the hub does not answer: its cache may have the model
            plan = None
    rows: dict[str, Any] = {} if plan is None else _plan_facts(plan)
    if plan is None or plan.there:
        spec, path = describe_model(args.name)
        rows = {**_shape_facts(spec), "path": str(path), **rows}
    if args.json:
        print_json(rows)
        return 0
    print("\n".join(f"{name.replace('_', ' '):16} {_fact_text(name, value)}" for name, value in rows.items()))
    return 0


def _show_heads(args: argparse.Namespace) -> int:
    """Print what a folder of draft heads holds, and what was made of each key of its config."""
    from decodescope.engine.core.paths import expand_path
    from decodescope.engine.model.heads.describe import describe_heads

    facts = describe_heads(expand_path(args.name))
    if args.json:
        print_json(facts)
        return 0
    keys, remarks = facts.pop("keys"), facts.pop("remarks")
    for name, value in facts.items():
        shown = ", ".join(f"{x} {y}" for x, y in value.items()) if isinstance(value, dict) else value
        shown = ", ".join("all" if x is None else str(x) for x in shown) if isinstance(shown, list) else shown
        print(f"{name.replace('_', ' '):16} {'unknown' if shown is None else _fact_text(name, shown)}")
    print()
    rows = [[x["key"], str(x["value"])[:40], x["use"]] for x in keys]
    print(table(("key of config.json", "value", "what was made of it"), rows))
    for remark in remarks:
        print(f"\n{remark}")
    return 0


def _plan_text(plan: DownloadPlan) -> str:
    """What a download takes, said before it begins."""
    if plan.there:
        return f"{plan.title} is there already, in {plan.place}."
    return (
        f"{plan.title} comes from {plan.origin}: {_megabytes(plan.download_bytes)} to fetch, licence {plan.licence}. "
        f"{_megabytes(plan.stored_bytes)} stay in {plan.place}, where {_megabytes(plan.free_bytes)} are free."
    )


def _plan_facts(plan: DownloadPlan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "origin": plan.origin,
        "licence": plan.licence,
        "here": plan.there,
        "download_bytes": plan.download_bytes,
        "stored_bytes": plan.stored_bytes,
        "place": str(plan.place),
    }


def _shape_facts(spec: ModelSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "family": spec.family,
        "params": spec.params,
        "context": spec.max_positions,
        "layers": spec.n_layers,
        "width": spec.d_model,
        "heads": spec.n_heads,
        "kv_heads": spec.n_kv_heads,
        "vocabulary": spec.vocab,
        "stored_as": spec.stored_as or "safetensors",
        "draft_heads": list(spec.heads),
    }


def _fact_text(name: str, value: Any) -> str:
    """A fact as people read it."""
    if name.endswith("_bytes"):
        return _megabytes(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _megabytes(count: int) -> str:
    """Bytes as a download is spoken of, e.g. `93 MB`."""
    return f"{count / 1e6:,.0f} MB" if count < 1e10 else f"{count / 1e9:,.0f} GB"
