"""Planted bugs: changes of one or a few lines, each of which a test of `make test` has to find.

When the code of a bug changes, its entry must change with it: a test lists the entries that no longer fit. `tests` are the
files that run first; they are part of what `make test` runs.
"""

from __future__ import annotations

from typing import NamedTuple


class Bug(NamedTuple):
    """One bug.

    file: its path from the root;  right, wrong: a text that occurs once in the file, and its replacement;  tests: files that
    find the bug
    """

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


RULES = "engine/decoding/bases/acceptance.py"
CHANCE = "engine/decoding/values/chance.py"
DRAFT = "engine/decoding/values/draft.py"
STORE = "engine/model/stores/store.py"
SETTLE = "engine/decoding/record/commit_verdict.py"
METHODS = "engine/methods/"
KERNELS = ("tests/engine/test_kernels.py",)
LAW = ("tests/law/test_exact.py", "tests/law/test_edges.py", "tests/law/test_chance.py")

BUGS = (
    # acceptance: which tokens are kept, and what is drawn after a refusal
    Bug("the residual is not taken", RULES, "rest = (r - q).clamp_min_(0)", "rest = r.clone()", LAW),
    Bug("the residual keeps the refused token", RULES, "as_array(rest)[x] = 0.0", "as_array(rest)[x] *= 1.0", LAW),
    Bug("an empty residual is not renormalised", RULES, "rest.div_(total) if float(total) > 0 else r / r.sum()", "rest.div_(total)",
        ("tests/law/test_edges.py", "tests/law/test_typical.py", *LAW)),
    Bug("siblings are tried against p, not what is left", RULES, "r_x = float(of_r[x])", "r_x = float(of_p[x])", LAW),
    Bug("the token after a refusal is drawn from p", RULES, "drawn = chance.draw(r, at.position)", "drawn = chance.draw(p, at.position)", LAW),
    Bug("exact matching takes the wrong child", RULES, "ok = draft.tokens[child] == at.choice", "ok = draft.tokens[child] != at.choice",
        ("tests/contracts/test_drafters.py",)),
    Bug("a bonus is called a residual", RULES,
        "origin: Origin = \"residual\" if children else origin_behind(draft)\n            return Verdict(path, drawn.token",
        "origin: Origin = \"residual\"\n            return Verdict(path, drawn.token", ("tests/law/test_counts.py", "tests/engine/test_session.py", *LAW)),
    Bug("a position is not counted on", RULES, "            self.position + 1,\n", "            self.position,\n",
        ("tests/law/test_seeded_bugs.py", "tests/engine/test_session.py", *LAW)),
    # chance
    Bug("a test accepts where u equals the ratio's other side", CHANCE, "return u * ratio_den < ratio_num, u", "return u * ratio_den > ratio_num, u", LAW),
    Bug("the wrong side of an interval", CHANCE,
        'token = int(sums.searchsorted(u * total, "right"))\n    if token == len(sums):', 'token = int(sums.searchsorted(u * total, "left"))\n    if token == len(sums):', LAW),
    Bug("a place that is drafted twice is drawn alike", CHANCE, "self._uses[key] = index + 1", "self._uses[key] = index", LAW),
    Bug("purposes share their uniforms", CHANCE, "key = (position, _PURPOSES[purpose])", "key = (position, 1)", LAW),
    Bug("a shuffle that leaves the last in its place", CHANCE, "for i in range(k - 1, 0, -1):", "for i in range(k - 2, 0, -1):", LAW),
    Bug("a taken token stays", CHANCE, "self.sums[token:] -= share", "self.sums[token:] -= 0 * share", LAW),
    Bug("draws without replacement are not normalised", CHANCE, "return q.div_(q.sum(1, keepdim=True))", "return q", LAW),
    # drafts
    Bug("a chain's parents are off by one", DRAFT, "list(range(ROOT, len(tokens) - 1))", "[ROOT] * len(tokens)", ("tests/contracts/test_drafters.py",)),
    Bug("a passenger is accepted", DRAFT, "if self.acceptable is None or self.acceptable[i]:", "if True:", ("tests/methods/test_token_recycling.py", *LAW)),
    Bug("passengers are counted as drafted", DRAFT, "return len(self.tokens) if self.acceptable is None else sum(self.acceptable)", "return len(self.tokens)", LAW),
    Bug("the mask of slots shows them to the tree", DRAFT, "seen[n:, :n] = tree[rows]", "seen[:n, n:] = tree[rows].T", ("tests/engine/test_slots.py", "tests/methods/test_ppd.py")),
    # how a verdict changes the text
    Bug("a stop token does not cut the verdict", SETTLE, "emitted, origins = emitted[:count], origins[:count]", "pass", LAW),
    Bug("the sampler's state is not brought along", SETTLE, "s.sampler_state = at.state_after(token)", "at.state_after(token)", LAW),
    Bug("the path is not cut with the text", SETTLE, "verdict = replace(verdict, path=verdict.path[:count], token=None)", "verdict = replace(verdict, token=None)", LAW),
    # the cache
    Bug("rows are committed from the wrong place", STORE, "table.select(axis, to).copy_(table.select(axis, self.n + row))", "table.select(axis, to).copy_(table.select(axis, self.n + row - 1))",
        ("tests/contracts/test_drafters.py", "tests/engine/test_cache.py")),
    Bug("a rollback leaves the pending rows", STORE, "self.m, self._pending = keep, self._pending[:, :keep] if keep else None", "self._pending = self._pending[:, :keep] if keep else None",
        ("tests/contracts/test_drafters.py", "tests/engine/test_cache.py")),
    Bug("evicted slots are not closed", STORE, "by_entry[holes] = by_entry[tail]", "by_entry[holes] = by_entry[holes]", ("tests/engine/test_cache.py", "tests/contracts/test_policies.py")),
    Bug("eviction is not logged", STORE, "self.evicted.append(pos[:, :, : self.n].masked_fill(stays, -1))", "pass", ("tests/contracts/test_policies.py", "tests/engine/test_cache.py")),
    Bug("memory of evicted entries is not returned", STORE, "self.n, self._freed = most, True", "self.n, self._freed = most, False", ("tests/contracts/test_policies.py", "tests/engine/test_cache.py")),
    Bug("truncating keeps one entry too many", STORE, "inside = self._pos[:, :, : self.n] < length", "inside = self._pos[:, :, : self.n] <= length", ("tests/engine/test_cache.py", "tests/contracts/test_policies.py")),
    Bug("a store grows without what it held", STORE, "new.narrow(axis, 0, used).copy_(old.narrow(axis, 0, used))", "new.narrow(axis, 0, max(used - 1, 0)).copy_(old.narrow(axis, 0, max(used - 1, 0)))",
        ("tests/engine/test_cache.py", "tests/contracts/test_drafters.py")),
    Bug("reordered hypotheses keep their positions", STORE, "self._pos = None if self._pos is None else self._pos.index_select(0, order)", "pass", ("tests/engine/test_cache.py", "tests/contracts/test_policies.py", "tests/methods/test_beam.py")),
    Bug("a band is one entry too wide", "engine/model/forward/masks.py", "keys >= self.feed.positions[:, None, :, None] - self.band.newest", "keys >= self.feed.positions[:, None, :, None] - self.band.newest - 1",
        ("tests/methods/test_window_and_sinks.py", "tests/engine/test_sparse_read.py", "tests/contracts/test_policies.py")),
    Bug("a sliding window is one entry too wide", "engine/model/forward/masks.py", "mask = mask & (self._query_distances(store) < window)", "mask = mask & (self._query_distances(store) <= window)", ("tests/engine/test_families.py", "tests/engine/test_decoder.py")),
    Bug("pages of the oldest are evicted from the front", "engine/decoding/bases/policy.py", "oldest[key] = pos.topk(gone, largest=False).indices.tolist()", "oldest[key] = pos.topk(gone, largest=True).indices.tolist()", ("tests/contracts/test_policies.py", "tests/contracts/test_grid.py")),
    Bug("sinks leave with the oldest", "engine/decoding/bases/policy.py", "pos = pos.masked_fill(pos < protect, cache.length)", "pass", ("tests/contracts/test_policies.py", "tests/contracts/test_grid.py")),
    # positions, attention
    Bug("linear scaling multiplies", "engine/model/layers/rope.py", "return inv / rope.factor\n", "return inv * rope.factor\n", ("tests/engine/test_families.py", "tests/engine/test_keys.py")),
    Bug("the rotation turns the other way", "engine/model/layers/rope.py", "torch.cat([-sin, sin], -1)", "torch.cat([sin, -sin], -1)", ("tests/engine/test_families.py", "tests/engine/test_decoder.py")),
    Bug("scores are not scaled where they are seen", "engine/model/attention/attention.py", "scores = soft_cap(scores.view(B, H, g, T, -1).mul_(scale), cap)", "scores = soft_cap(scores.view(B, H, g, T, -1), cap)", ("tests/engine/test_decoder.py", "tests/contracts/test_policies.py")),
    Bug("column sums leave the group out", "engine/model/attention/attention.py", "sums += given.sum((2, 3))", "sums += given[:, :, 0].sum(2)", ("tests/methods/test_h2o.py", "tests/contracts/test_grid.py", "tests/engine/test_columns.py")),
    # samplers
    Bug("top-p keeps what is behind the mass", METHODS + "samplers/top_p.py", "out = before >= self.p", "out = before > 1 - self.p", ("tests/law/test_checklist.py", *LAW)),
    Bug("top-p may drop the likeliest", METHODS + "samplers/top_p.py", "out[..., 0] = False", "pass", ("tests/methods/test_samplers.py",)),
    Bug("min-p compares with the sum", METHODS + "samplers/min_p.py", "logits.amax(-1, keepdim=True)", "logits.logsumexp(-1, keepdim=True)", ("tests/methods/test_samplers.py",)),
    Bug("mirostat counts nats", METHODS + "samplers/mirostat.py", "/ math.log(2)", "/ 1.0", ("tests/law/test_checklist.py", *LAW)),
    Bug("a penalty makes negative logits likelier", METHODS + "samplers/repetition_penalty.py", "torch.where(z > 0, z / self.penalty, z * self.penalty)", "z / self.penalty", ("tests/law/test_checklist.py", *LAW)),
    Bug("a penalty forgets the text", METHODS + "samplers/repetition_penalty.py", "return state if token in state else state | {token}", "return state", LAW),
    Bug("a chain's stages run backwards", METHODS + "samplers/chain.py", "for stage, s in zip(self.stages, state, strict=True):\n            logits = stage.warp(logits, s)", "for stage, s in zip(self.stages[::-1], state[::-1], strict=True):\n            logits = stage.warp(logits, s)", ("tests/law/test_checklist.py", *LAW)),
    Bug("locally typical sorts by surprise alone", METHODS + "samplers/locally_typical.py", "(surprise - torch.special.entr(p).sum(-1, keepdim=True)).abs()", "surprise.abs()", ("tests/law/test_checklist.py", "tests/methods/test_locally_typical.py", "tests/law/test_registry.py")),
    # drafters
    Bug("prompt lookup copies from one token too far", METHODS + "drafters/lookup/prompt_lookup.py", "copied = text[at : at + min(self.max_draft_tokens, ctx.room)]", "copied = text[at + 1 : at + 1 + min(self.max_draft_tokens, ctx.room)]", ("tests/methods/test_prompt_lookup.py", "tests/contracts/test_notes.py")),
    Bug("prompt lookup takes the suffix itself", METHODS + "drafters/lookup/prompt_lookup.py", 'at = ends[-2] if self.match == "latest" else ends[0]', 'at = ends[-1] if self.match == "latest" else ends[0]', ("tests/methods/test_prompt_lookup.py", "tests/contracts/test_drafters.py")),
    Bug("a draft goes beyond the room", METHODS + "drafters/lookup/anpd.py", "while len(followers) < min(self.max_draft_tokens, ctx.room):", "while len(followers) < self.max_draft_tokens:", ("tests/contracts/test_drafters.py",)),
    Bug("refused tokens overwrite accepted ones", METHODS + "drafters/lookup/token_recycling.py", "if row not in accepted:", "if row in accepted:", ("tests/methods/test_token_recycling.py",)),
    Bug("the accepted context is not learnt", METHODS + "drafters/lookup/token_recycling.py", "for row in sorted(accepted):", "for row in ():", ("tests/methods/test_token_recycling.py",)),
    Bug("a node is scored by what it is not", METHODS + "drafters/lookup/trie.py", "score = (1 - self.output_weight) * x.f_in + self.output_weight * x.f_out", "score = self.output_weight * x.f_in + (1 - self.output_weight) * x.f_out", ("tests/methods/test_trie.py",)),
    Bug("siblings drawn with replacement are called without", METHODS + "drafters/draft_model/rsd_s.py", "left = slot.phi + math.log1p(-taken)", "left = slot.phi", ("tests/methods/test_rsd.py", *LAW)),
    # policies, KV compression, depth, schedules, guidance
    Bug("heavy hitters are those without mass", METHODS + "policies/h2o.py", 'return store.column("mass")', 'return -store.column("mass")', ("tests/contracts/test_grid.py", "tests/methods/test_h2o.py")),
    Bug("TOVA looks at the first row", METHODS + "policies/tova.py", "given = rows[:, :, :, -1].mean((1, 2))", "given = rows[:, :, :, 0].mean((1, 2))", ("tests/contracts/test_grid.py", "tests/methods/test_tova.py")),
    Bug("long keys stay", METHODS + "policies/key_norm.py", 'return -store.column("norm")', 'return store.column("norm")', ("tests/contracts/test_grid.py", "tests/methods/test_key_norm.py")),
    Bug("bursts are rounded down", METHODS + "policies/scissorhands.py", "return -(-super().surplus(store) // self.eviction_count) * self.eviction_count", "return super().surplus(store) // self.eviction_count * self.eviction_count", ("tests/contracts/test_grid.py", "tests/methods/test_scissorhands.py")),
    Bug("packed keys are joined along the values' axis", METHODS + "kv_compression/kivi.py", 'axis = 3 if side == "keys" else 2', "axis = 2", ("tests/methods/test_kivi.py", "tests/contracts/test_kv_compression.py")),
    Bug("patience counts on after a change", METHODS + "adaptive_depth/patience.py", "torch.where(self._before == before, self._count + 1, 0)", "self._count + 1", ("tests/methods/test_exit_rules.py", "tests/methods/test_exit_rules.py")),
    Bug("an exit looks at the second best", METHODS + "adaptive_depth/confidence_exit.py", 'return best[..., 0] if self.criterion == "softmax_max"', 'return best[..., 1] if self.criterion == "softmax_max"', ("tests/methods/test_confidence_exit.py", "tests/methods/test_exit_rules.py")),
    Bug("a length grows where the draft was refused", METHODS + "schedules/heuristic.py", "if matched", "if not matched", ("tests/methods/test_schedules.py", "tests/methods/test_cerberus.py")),
    Bug("guidance leaves out what is likely", METHODS + "guidance/contrastive.py", "return (p - self.strength * q).masked_fill_(p < floor, -torch.inf)\n\n    def observe", "return (p - self.strength * q).masked_fill_(p > floor, -torch.inf)\n\n    def observe", ("tests/law/test_guidance.py", "tests/methods/test_contrastive.py")),
    Bug("k-SEQ tests without rho", METHODS + "acceptance/spectr.py", "ok, u = chance.accept(p_x, rho * q_x, position)", "ok, u = chance.accept(p_x, q_x, position)", LAW),
    Bug("typical acceptance forgets the entropy", METHODS + "acceptance/typical.py", "return min(self.epsilon, self.delta * math.exp(-entropy))", "return self.epsilon", ("tests/methods/test_acceptance.py",)),
    # kernels: a row must not depend on its neighbouring rows
    Bug("a product of several rows is summed in another order", "engine/kernels/instructions.py",
        "    weights = [read_numbers(b, at(w, ws, j, i, SIZES[kind]), kind, LANES) for j in range(outputs)]\n    if outputs > 1:\n        prefetch(i)\n    for r, row in enumerate(sums):\n        value = read_numbers(b, at(x, xs, r, i, 4), FLOAT32, LANES)\n",
        "    last = b.sub(b.and_(k, _constant(~(LANES - 1))), _constant(LANES))\n    place = i if rows == 1 else b.sub(last, i)\n    weights = [read_numbers(b, at(w, ws, j, place, SIZES[kind]), kind, LANES) for j in range(outputs)]\n    for r, row in enumerate(sums):\n        value = read_numbers(b, at(x, xs, r, place, 4), FLOAT32, LANES)\n", KERNELS),
    Bug("a product of several rows rounds each term", "engine/kernels/instructions.py", 's.add_incoming(call_function(b, "fma", weight, value, s), body)\n    i.add_incoming(b.add(i, _constant(LANES)), body)', 's.add_incoming(call_function(b, "fma", weight, value, s) if rows == 1 else b.fadd(s, b.fmul(weight, value)), body)\n    i.add_incoming(b.add(i, _constant(LANES)), body)', KERNELS),
    Bug("attention is summed in two halves of the cache", "engine/kernels/attention.py",
        "    row_sums(p, stride, last, totals)",
        "    row_sums(p, stride, last // 2, totals)\n    for r in range(tall):\n        late = _ZERO\n        for s in range(last // 2, last):\n            late += read(FLOAT32, p + r * stride + 4 * s)\n        write(FLOAT32, totals + 4 * r, read(FLOAT32, totals + 4 * r) + late)\n   ", KERNELS),
    Bug("an offset of 4 bits is that of the next group", "engine/kernels/unpacking.py", "b.mul(b.lshr(run.t, run.shift), run.stride)", "b.mul(b.lshr(b.add(run.t, _constant(1)), run.shift), run.stride)", ("tests/engine/test_packed_kernels.py",)),
    Bug("a causal row sees one entry too many", "engine/kernels/attention.py", "row // load(a + _GROUP) + 1", "row // load(a + _GROUP) + 1 + (row // load(a + _GROUP) + 1 < load(a + _ROWS))", KERNELS),
    # strategies
    Bug("a fixed point is called final one token too late", METHODS + "strategies/jacobi.py", "while fixed < len(guesses) and guesses[fixed - 1] == after[fixed - 1]:", "while fixed < len(guesses) and guesses[fixed] == after[fixed]:", ("tests/methods/test_jacobi.py",)),
    Bug("contrastive search rewards likeness", METHODS + "strategies/contrastive_search.py", "(1 - self.alpha) * p - self.alpha * nearest", "(1 - self.alpha) * p + self.alpha * nearest", ("tests/methods/test_contrastive_search.py",)),
    # records and their checks
    Bug("the level of a node is off by one", "engine/core/tree.py", "levels.append(1 if parent < 0 else levels[parent] + 1)", "levels.append(0 if parent < 0 else levels[parent] + 1)", ("tests/contracts/test_drafters.py",)),
    Bug("a note stands on the wrong token", METHODS + "drafters/lookup/prompt_lookup.py", 'notes["copied"] = [*range(at, at + len(copied))]', 'notes["copied"] = [*range(at + 1, at + 1 + len(copied))]', ("tests/trace/test_copies.py", "tests/contracts/test_notes.py", "tests/contracts/test_drafters.py")),
    Bug("a check believes every verdict", "engine/trace/checks/verdicts.py", "elif stays is not None and ok != stays:", "elif False:", ("tests/trace/test_check.py", "tests/app/test_borrowed_rule.py")),
    Bug("a check believes every relation", "engine/trace/checks/verdicts.py", "elif not agree(a, sign, b, due.within):", "elif False:", ("tests/app/test_borrowed_rule.py",)),
    Bug("a check believes every interval", "engine/trace/checks/verdicts.py", "not extra.low - ROUNDING <= extra.u < extra.high + ROUNDING", "False", ("tests/trace/test_check.py",)),
    Bug("a check believes every row of a tally", "engine/trace/details/tally.py", "(number >= bar) != outcome.holds", "False", ("tests/app/test_borrowed_strategy.py",)),
    Bug("a check believes every count of entries", "engine/trace/checks/entries.py", "if int(self._held.max()) != change.held:", "if False:", ("tests/trace/test_check.py", "tests/engine/test_visible_entries.py")),
)  # fmt: skip
