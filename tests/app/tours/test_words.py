"""Guided tours of samplers, searches and prompts: what each tour says about its run is true."""

from __future__ import annotations

import json
from math import exp

import pytest
from followed import followed, searched
from toured import TOURS, cache_of, likely, opened, says, steps_of, text_of, told

from decodescope.engine import Method, Session, load
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.query.repeats import (
    emitted_probabilities,
    find_repeats,
    loop_rounds,
    repeated_share,
)


def test_what_is_said_of_the_text_that_fits_a_schema() -> None:
    tour, kept = TOURS["grammar"], steps_of("grammar")
    with opened("grammar") as trace:
        words = [trace.text([step.emitted[0]]) for step in kept]
        record = json.loads(trace.text(trace.emitted_ids[:-1]))
        tops = [zip(x.tops.ids[0], x.tops.p[0], strict=True) for x in kept if x.tops is not None]
        likely = [{trace.text([int(token)]): float(p) for token, p in row} for row in tops]
    assert record == {"name": "Bertha", "city": "Bertha", "tags": ["silver", "gold"], "active": False}
    assert [words[x.step] for x in tour][:-1] == ['{"', "name", "a", "city", "B", "s", "o"] and len(
        kept
    ) == 37
    sampler = [step.sampler or {} for step in kept]
    assert [sampler[x.step]["allowed"] for x in tour] == [2, 3, 1, 3, 178, 6, 3, 1] and sampler[7][
        "forced"
    ] == 1
    assert (
        "".join(words[4:7]) == "Berth"
        and max(likely[7], key=likely[7].__getitem__) == "a"
        and words[27] == "g"
    )
    says(tour[0], likely[0]["T"], likely[0]["Th"])
    says(tour[1], sampler[1]["refused"])
    says(tour[3], likely[10]["age"], sampler[10]["refused"])
    says(tour[4], likely[13]["T"], likely[13]["B"])
    says(tour[5], likely[22]["y"], likely[22]["s"])
    says(tour[6], likely[28]["olden"])
    orders = [sorted(row, key=row.__getitem__, reverse=True) for row in likely]
    assert orders[0][:2] == ["T", "Th"] and sampler[0]["refused"] > 0.9999 and orders[22][3] == "s"
    assert orders[22][0] == "y" and not {x[0] for x in orders[22][:3]} & {"g", "s", "r"}, (
        "begin none of the three tags"
    )
    allowed = [k for k, step in enumerate(sampler) if k and words[k] == "<|end|>"]
    assert allowed == [36] and words[35] == "}"


def test_what_is_said_of_the_text_that_goes_round() -> None:
    tour = TOURS["loop"]
    with opened("loop") as trace:
        steps, prompt = list(trace.steps), trace.header.prompt.tolist()
        (loop,) = find_repeats(trace.emitted_ids)
        laws = [law for step in steps for law in emitted_probabilities(step)]
        again, texts = repeated_share(trace.emitted_ids), [trace.text(x.emitted) for x in steps]
    p = [law[0] for law in laws if law is not None]
    by_round = {x.n: x.tp for x in loop_rounds(loop, laws)}
    assert (loop.at, loop.period, loop.ending, len(p)) == (12, 12, True, 84) and tour[2].step == 23
    assert [x.step for x in tour[:4]] == [6, 18, 23, 30] and p[6] < p[18] < p[30]
    assert (
        steps[6].emitted == steps[18].emitted == steps[30].emitted
        and texts[6] == " b"
        and texts[40].startswith("\n\n")
    )
    for stop in (0, 1, 3, 4):
        says(tour[stop], p[tour[stop].step])
    says(tour[2], by_round[1], by_round[2], digits=3)
    says(tour[5], by_round[5], digits=3)
    assert (
        tour[5].step == 23 + 3 * 12
        and p[40] < 0.5
        and by_round[2] - by_round[1] > 5 * abs(by_round[5] - by_round[2])
    )
    assert f"{again:.0%}".replace("%", " %") in tour[6].text and steps[30].tops is not None
    assert sorted(steps[30].tops.p[0])[-2] < 0.1
    made = Session(
        load("lab", "float32", "cpu"), Method.from_names({"sampler": ["momentum"]}), prompt, max_new_tokens=84
    )
    for _ in made.stream():
        pass
    assert not any(x.loop for x in find_repeats(made.tokens[len(prompt) :]))


def test_what_is_said_of_the_token_that_repeats_least() -> None:
    tour = TOURS["contrastive"]
    with opened("contrastive") as trace:
        steps, prompt = list(trace.steps), [int(x) for x in trace.header.prompt]
        rows, near = [], []
        for i, step in enumerate(steps):
            (choice,) = step.choices or []
            before = prompt + [x for s in steps[:i] for x in s.emitted]
            words = [trace.text([x]) for x in choice.candidates]
            rows.append(dict(zip(words, zip(*choice.terms.values(), strict=True), strict=True)))
            nearest = (step.notes or {})["nearest"]
            near.append({w: trace.text([before[k]]) for w, (_, k) in zip(words, nearest, strict=True)})
        taken = [trace.text(step.emitted) for step in steps]
    assert all(
        (step.choices or [])[0].weights == {"p": pytest.approx(0.4), "max cos": pytest.approx(-0.6)}
        for step in steps
    )
    at = [x.step for x in tour]
    assert [taken[i] for i in at] == [" named", " N", " lived", "k", " bo", " M", " the"]
    for stop, words in (
        (0, [" named"]),
        (1, [" S"]),
        (3, ["cy", "k"]),
        (4, [" g", " bo"]),
        (5, [" the", " M"]),
    ):
        says(tour[stop], *(x for word in words for x in rows[at[stop]][word]))
    says(tour[2], rows[9][" lived"][1], rows[9][" lived"][0])
    likeliest = [max(rows[i], key=lambda word, row=rows[i]: row[word][0]) for i in at[:6]]
    assert (
        likeliest == [" named", " N", " lived", "cy", " bo", " the"]
        and rows[24][" the"][0] > 7 * rows[24][" M"][0]
    )
    assert [*rows[5]][4] == " S" and [*rows[19]][4] == " g", "the last of five by the score"
    assert [near[i][w] for i, w in ((5, " S"), (9, " lived"), (19, " g"), (24, " the"))] == [
        " S",
        " named",
        " g",
        "On",
    ]
    assert near[12]["cy"] == "an" and near[0][" named"] == "," and taken[2:5] == ["us", "an", "."]
    assert ["".join(taken[a:b]) for a, b in ((1, 4), (10, 14), (19, 21), (24, 27))] == [
        " Susan",
        " Lukas",
        " boy",
        " Monday",
    ]
    words = "".join(taken).split()
    assert [x for x in words if words.count(x) > 1] == ["the", "the"]
    assert all(sum(x.tokens for x in step.passes) == 5 and len(step.passes) == 1 for step in steps[1:])


def test_what_is_said_of_texts_weighed_by_what_follows() -> None:
    tour = TOURS["aligned"]
    with opened("aligned") as trace:
        steps = list(trace.steps)
        drawn = [detail for step in steps if (detail := step.detail("drawn_texts")) is not None]
        tokens = [x.columns["tokens"][0] for x in drawn]
        words = [trace.text(x) for x in tokens]
        pieces = [[trace.text([token]) for token in x[:3]] for x in tokens]
    notes = [step.notes or {} for step in steps]
    # the name of the space token is empty
    law = [{name.partition(" ")[2].strip(): p for name, p in x["aligned"].items()} for x in notes]
    first = {name.split()[-1]: p for name, p in notes[0]["grammar"].items()}
    says(tour[0], first["bo"], first["g"], first["c"])
    says(tour[1], law[1]["c"])
    says(tour[2], drawn[4].columns["logp"][0], digits=2)
    says(tour[3], *(exp(drawn[k].values["bound"]) for k in (10, 9)), digits=5)
    says(tour[6], *(law[21][x] for x in ("bo", "g", "c", "do")))
    assert law[3]["d"] > 0.4 and law[4]["d"] < 1e-6 and law[0]["c"] > 0.3 and law[14][""] > 0.5
    assert sorted(law[21], key=law[21].__getitem__, reverse=True)[:4] == ["bo", "g", "c", "do"]
    assert (
        words[1].startswith(" cat named Max.")
        and words[4].startswith(" dog")
        and pieces[4] == [" d", "o", "g"]
    )
    assert [x[0] == " " for x in pieces[:16]] == [False] * 15 + [True], (
        "the 16th text is the first that goes that way"
    )
    assert (
        not steps[19].passes
        and all(step.passes for step in steps[:19])
        and len(steps) == 22
        and words[19] in words[:19]
    )


def test_what_is_said_of_the_search_by_a_test() -> None:
    tour = TOURS["planned"]
    with opened("planned") as trace:
        search = searched(trace)
    assert (len(search.texts), search.best, search.why) == (21, 20, "solved")
    chosen = [[0.0], *(search.behind(k)[1][:2] for k in range(1, 22))]
    says(tour[2], *chosen[10], *search.priors[search.parents[10]][:2], digits=3)
    says(tour[4], *search.priors[search.parents[19]][:2], digits=3)
    says(tour[5], *chosen[21], digits=3)
    with opened("planned") as trace:
        texts = [trace.text(x.tokens).removesuffix("<|end|>") for x in search.texts]
        pieces = ["", *(trace.text([x]) for x in search.tokens[1:])]
    short, lost = "(14 + 2 - 5 * 3) * (11 - 9)", "(14 + 2 - (7 + 15 + (7 + 15 + (11 - 9))"
    assert (
        {*texts[:9]} == {short}
        and texts[9] == texts[12] == lost
        and texts[18] == short
        and short in tour[0].text
    )
    assert (
        texts[20] == "(14 + 2 - 5 * 3) * (7 + 15 + (11 - 9))"
        and texts[20] in tour[5].text
        and lost.count("7 + 15") == 2
    )
    assert (14 + 2 - 5 * 3) * (11 - 9) == 2 and lost.count("(") > lost.count(")")
    assert (14 + 2 - 5 * 3) * (7 + 15 + (11 - 9)) == 24 and len({*texts}) == 3
    assert [pieces[k] for k in (8, 10, 19, 21)] == [" ", " (", "1", "7"] and search.parents[
        8
    ] == search.parents[10] == 7
    assert search.parents[9] == 8 and search.parents[19] == search.parents[21] == 18, (
        "8 was passed twice, 19 once"
    )
    assert search.texts[4].read == 0 and min(search.priors[search.parents[k]][0] for k in range(1, 8)) > 0.99
    assert sum(x.read for x in search.texts) == 55 and [x.reward for x in search.texts] == [0.0] * 20 + [1.0]


def test_what_is_said_of_the_vote() -> None:
    tour, steps = TOURS["consensus"], steps_of("consensus")
    vote = steps[8].detail("voted_texts")
    votes, logp = vote.columns["votes"], vote.columns["logp"]
    assert len(steps) == 9 and len(vote) == 8 and vote.values["chosen"] == 3
    with opened("consensus") as trace:
        texts = [trace.text(x).removesuffix("<|end|>") for x in vote.columns["tokens"]]
    assert [k for k, x in enumerate(texts) if x == "4 * 8 = 32"] == [3, 4] and len({*texts}) == 7
    assert [texts[k] for k in (0, 1, 5)] == ["4 * 8 = 34", "4 - 8 = 7", "4 * 8 = 35"] and "8 texts" in tour[
        0
    ].text
    says(tour[1], votes[3], digits=3)
    says(tour[2], votes[5], digits=3)
    says(tour[3], logp[0], logp[3], digits=2)
    says(tour[3], votes[0], digits=3)
    says(tour[4], logp[1], digits=2)
    says(tour[4], votes[1], digits=3)
    assert logp[0] > logp[3] == max(logp[1:]) and {*votes} == {0.25, 0.125}
    assert len([x for x in texts if not x.endswith("= 32")]) == len({*texts} - {"4 * 8 = 32"}) == 6


def test_what_is_said_of_the_shorter_prompt() -> None:
    tour, steps, kept = TOURS["gemfilter"], told("gemfilter"), steps_of("gemfilter")
    with opened("gemfilter") as trace:
        assert trace.prefill is not None and trace.prefill.cut is not None
        cut, passes = trace.prefill.cut, trace.prefill.passes
        prompt = [trace.text([int(x)]) for x in trace.header.prompt]
        left = "".join(prompt[i] for i in cut.kept)
    assert (len(prompt), len(cut.kept), cut.layers) == (74, 52, [5]) and (
        passes[0].tokens,
        passes[0].attn,
    ) == (74, 5)
    assert "with Rufus instead" in left and "beach with" in left and "who had a box" in left
    assert "with a pink wheel" in "".join(prompt) and not any(
        x in left for x in ("pink", "wheel", "grape", "ate")
    )
    assert left.count("Julia") == 1 and left.count("Jia") == 1 and prompt[6:10] == [" R", "u", "f", "us"]
    assert (
        text_of(steps)
        == "Rufus went to the beach with a green box. There Rufus met Julia. Julia and Rufus ate pears."
    )
    for stop, ranks in ((2, (0,)), (3, (0,)), (4, (0,)), (5, (0,)), (6, (0, 1))):
        says(tour[stop], *(likely(kept[tour[stop].step])[i] for i in ranks))
    assert [steps[x.step]["made"][0][1] for x in tour[2:7]] == [" be", " green", " box", "ul", " pe"]
    assert cache_of("gemfilter")[37].held == 89


def test_what_is_said_of_the_phrase_that_was_left_out() -> None:
    tour, steps = TOURS["short-prompt"], steps_of("short-prompt")
    with opened("short-prompt") as trace:
        cut = None if trace.prefill is None else trace.prefill.cut
        assert cut is not None and cut.units is not None and cut.worth is not None and cut.reason is not None
        words = [trace.text([int(x)]) for x in trace.header.prompt]
        written = [trace.text(x.emitted) for x in steps]
    left, seen = (
        "".join(w for w, r in zip(words, cut.reason, strict=True) if (r == 0) == out) for out in (True, False)
    )
    units = {
        "".join(words[a:b]): k
        for k, (a, b) in enumerate(zip(cut.units, [*cut.units[1:], len(words)], strict=True))
    }
    beach, wheel = (float(cut.worth[units[x]]) for x in (" to the beach", " with a pink wheel."))
    read = [float(cut.worth[k]) for k in units.values() if cut.reason[cut.units[k]] == 1]
    assert left == " with a pink wheel." and wheel < beach == min(read)
    assert (len(words), len(cut.kept)) == (74, 66) and (cut.reason[2:17] == 3).all()
    sure = [float(x.tops.p[0].max()) for x in steps if x.tops is not None]
    assert len(sure) == 28 and min(sure[:4]) > 0.99
    for stop, word in zip(tour[4:7], (" with", " box", " R"), strict=True):
        assert written[stop.step] == word
        says(stop, sure[stop.step], digits=3)
    assert " with Rufus instead" in seen and " with" not in seen.split("Kurt went", 1)[1]
    assert "".join(written) == "Rufus went to the beach with a box. Rufus and Rufus ate grapes.<|end|>"
    assert seen.split("who had a box.")[1].startswith(" Julia and Kurt ate grapes.<|end|>") and "Yes" in seen
    assert f"{cache_of('short-prompt')[27].held} entries" in tour[7].text


def test_what_is_said_of_a_rough_answer_first() -> None:
    """The preview itself is not recorded: it is guessed here once more, by whole passes over the text."""
    tour, steps, kept = TOURS["preview"], told("preview"), steps_of("preview")
    decoder = load("lab", "float32", "cpu").decoder
    with opened("preview") as trace:
        prompt = trace.header.prompt.tolist()
        first = best_after(decoder, prompt)[-1]
        preview = [first] * 16
        for _ in range(3):
            preview = [first, *best_after(decoder, prompt + preview)[len(prompt) : -1]]
        assert trace.text(preview).startswith("Bruno went went went") and trace.text([first]) == "B"
        assert "There Lena saw a dog." in trace.text(prompt)
    assert steps[0]["kv"][0]["prompt"]["extras"] == [{"form": "latent", "at": len(prompt) - 1, "entries": 16}]
    for stop, ranks in ((1, (0, 1)), (2, (0,)), (3, (0, 1)), (4, (0, 1, 2))):
        says(tour[stop], *(likely(kept[tour[stop].step])[i] for i in ranks), digits=3)
    assert text_of(steps) == "There Bruno met Bruno.<|end|>" and len(steps) == 12
    plain = list(prompt)
    for _ in range(13):
        plain.append(best_after(decoder, plain)[-1])
    assert (
        load("lab", "float32", "cpu").tokenizer.decode(plain[len(prompt) :])
        == "Bruno went to the park with a red kite."
    )


def best_after(decoder: Decoder, tokens: list[int]) -> list[int]:
    """The likeliest next token after each of these."""
    logits = Lane("target", decoder, KeepAll()).forward(Feed.causal_chain(tokens, 0))[0]
    return [int(x) for x in logits.argmax(-1)]


def test_what_is_said_of_texts_that_branch_off_one_another() -> None:
    tour, cache, steps = TOURS["beam"], cache_of("beam"), steps_of("beam")
    beams, texts = [followed(x) for x in steps], [[""] * 4]
    assert [x.step for x in tour] == [0, 5, 8, 11, 12, 26, 31]
    assert [beams[i].parents for i in (5, 12, 26)] == [[0, 0, 2, 1], [2, 0, 0, 0], [1, 0, 0, 2]]
    says(tour[0], -beams[0].scores[0], -beams[0].scores[3], digits=2)
    kib = [(x.kept_bytes(x.held) / 2**10, x.full_bytes / 2**10) for x in cache]
    assert kib[8] == (272, 672) and kib[12] == (232, 800) and kib[26][0] == 400 < kib[25][0]
    with opened("beam") as trace:
        for x in beams:
            pieces = [trace.text([token]) for token in x.tokens]
            texts.append([texts[-1][parent] + piece for parent, piece in zip(x.parents, pieces, strict=True)])
    del texts[0]
    leads, lived = " named Lukas. Next door", " named Lukas. Next door lived"
    assert [texts[i][0] for i in (9, 10)] == [leads, lived] and texts[11][0].startswith(" named Mabel")
    assert [texts[11][k] for k in (1, 3)] == [lived + " M", lived + " J"] and not any(
        "Lukas" in x for x in texts[12]
    )
    says(tour[3], -beams[11].scores[1], -beams[11].scores[0], digits=2)
    assert (
        beams[10].scores[0] - beams[11].scores[1] > 2
        and len({x.rpartition(" ")[0] for x in texts[12][1:]}) == 1
    )
    assert [refs for *_, stop, refs in cache[12].shared.tolist() if stop == 25] == [1, 3], (
        "three read one path to its end"
    )
    assert (
        cache[0].held == 13
        and len(steps) == 32
        and text_of(told("beam")).startswith(" named Mabel. Mabel and Mabel had")
    )
    says(tour[6], -beams[31].scores[0], digits=2)
    assert "Mabel and Mabel had been friends" in text_of(told("beam"))
