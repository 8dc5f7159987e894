"""Interval eviction: let entries gather, and cut the cache back to its target every n tokens (kvpress's DecodingPress)."""

from __future__ import annotations

from decodescope.engine.core.component import component

from .shared.interval import IntervalCuts


@component
class IntervalEviction(IntervalCuts):
    """Every `interval` written tokens, keep the best `target_entries` entries of each KV head. In between the cache grows.

    A policy that cuts after each token scores all entries each time in order to drop one. Here that work is done once per
    interval, and an entry is judged among all that came meanwhile, instead of leaving at once. The price is memory: up to
    `target_entries` + `interval` entries are held.

    `scorer` is one of three scores that need no attention: the place, the norm of the key, or the difference of the key from
    the mean of all keys. With the last it is KeyDiff in blocks, as its paper has it. The first `sink_tokens` never leave;
    kvpress protects them only under its score by place (use `sink_tokens` = 0 for the others there). Of equal entries the
    lower position stays.

    With `compress_prompt` off the prompt stays whole until the first interval is over, as in kvpress's DecodingPress; with it
    on the prompt is cut when it ends, which kvpress calls PrefillDecodingPress. kvpress counts passes; here committed tokens
    count, so a draft that commits several at once brings the cut nearer. A cut follows a commit, and may come up to a draft's
    length late.
    """

    title = "Interval eviction (DecodingPress)"
    source = "NVIDIA/kvpress, kvpress/presses/decoding_press.py and prefill_decoding_press.py"
    goes = "Every `interval` written tokens each KV head gives up the entries that are worth least, down to its target."
