"""Metrics: a report as a flat dictionary of numbers, for the dashboards of others."""

from __future__ import annotations

from .report import AcceptanceReport


def report_metrics(report: AcceptanceReport) -> dict[str, float]:
    """Name -> number, in the order of the report; names have dots, such as `acceptance.depth.1`. What is unknown is left out.

    Rates are shares in [0, 1]; `tokens_per_s` is of one text; `speed.*` and `advice.*` are speeds over the present one,
    `speedup.*` over plain decoding.
    """
    metrics: dict[str, float | None] = {
        "runs": report.runs,
        "tokens": report.tokens,
        "steps": report.steps,
        "passes": report.passes,
        "tokens_per_pass": report.tau,
        "tokens_per_s": report.tokens_per_s,
        "drafted": report.drafted,
        "accepted": report.accepted,
        "acceptance": report.accepted / report.drafted if report.drafted else None,
        "accepted_length": sum(report.lengths) / len(report.lengths) if report.lengths else None,
        "expected_acceptance": report.expected,
    }
    metrics |= {f"drafts.{name}": count for name, count in report.fates.items()}
    metrics |= {f"acceptance.depth.{k}": x.share for k, x in enumerate(report.depths, 1)}
    metrics |= {f"acceptance.entropy.{x.label.replace(' ', '_')}": x.share for x in report.entropy}
    metrics |= {f"acceptance.kind.{x.label.replace(' ', '_')}": x.share for x in report.kinds}
    metrics |= {f"time.{name}": share for name, share in report.spent.items()}
    metrics |= {f"speed.length.{x.length}": x.gain for x in report.curve}
    metrics |= {f"speedup.length.{x.length}": x.over_plain for x in report.curve}
    metrics |= {f"speedup.width.{x.width}": x.over_plain for x in report.speed.widths}
    metrics |= {f"advice.{x.kind}.{x.name.replace(' ', '_')}": x.gain for x in report.advice}
    return {name: float(x) for name, x in metrics.items() if x is not None}
