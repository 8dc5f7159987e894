"""The records of a trace: one dataclass per kind. This file is the schema; docs/trace.md is checked against it.

Names include units: `_us` microseconds, `_bytes` bytes. A field that ends in `_us`, and `created`, is a time and stays out of
the content hash. Probabilities are doubles; a token is an id; -1 is the root (the last committed token before the
step), 0 the first drafted node. A field that is None was not recorded at the trace's level and is not written.
Levels: "summary" (always) < "decisions" < "full".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from decodescope.engine.core.arguments import Along
from decodescope.engine.core.exactness import Exactness
from decodescope.engine.core.note import Finding as Finding
from decodescope.engine.core.note import Note
from decodescope.engine.core.roles import WHOLE

from ..details.declarations import CanvasForm as CanvasForm
from ..details.declarations import CanvasWord as CanvasWord
from ..details.declarations import DetailColumn as DetailColumn
from ..details.declarations import Figure as Figure
from ..details.declarations import Form
from ..details.declarations import Growth as Growth
from ..details.declarations import MatrixForm as MatrixForm
from ..details.declarations import MatrixMark as MatrixMark
from ..details.declarations import NodeOutcome as NodeOutcome
from ..details.declarations import Outcome as Outcome
from ..details.declarations import Sentence as Sentence
from ..details.declarations import TallyForm as TallyForm
from ..details.declarations import Term as Term
from ..details.declarations import ThreadsForm as ThreadsForm
from ..details.declarations import TreeForm as TreeForm
from ..details.exploration import Explored as Explored
from ..details.looks import Look as Look
from ..details.shapes import Begun as Begun
from ..details.shapes import CanvasDetail as CanvasDetail
from ..details.shapes import Detail
from ..details.shapes import Ended as Ended
from ..details.shapes import MatrixDetail as MatrixDetail
from ..details.shapes import TallyDetail as TallyDetail
from ..details.shapes import ThreadsDetail as ThreadsDetail
from ..details.shapes import TreeDetail as TreeDetail
from ..details.veto import Veto as Veto
from .cache_change import Augmented as Augmented
from .cache_change import Packed as Packed
from .choices import Choice as Choice
from .draft_tops import DraftTops as DraftTops
from .entry_scores import Scores as Scores
from .environment import Environment as Environment
from .evidence import Telling
from .exits import Exit as Exit
from .head_plan import Plan as Plan
from .passes import Pass as Pass
from .prompt_cut import Cut as Cut
from .reference import ReferenceRecord
from .thinned_mass import ThinnedMass as ThinnedMass
from .weight_reports import Made as Made

SCHEMA = "2.1"
Level = Literal["summary", "decisions", "full"]
LEVELS: tuple[Level, ...] = ("summary", "decisions", "full")
# How a prompt was given: as text, as text with special tokens, as messages in JSON, or as token ids.
PromptKind = Literal["text", "marks", "messages", "ids"]
PROMPT_KINDS: tuple[PromptKind, ...] = ("text", "marks", "messages", "ids")
EndReason = Literal[
    "stop_token", "max_new_tokens", "stopped_by_user", "context_full", "out_of_memory", "non_finite_logits", "device_lost",
    "storage_full", "bad_input", "internal_error", "interrupted", "picture_full",
]  # fmt: skip
Origin = Literal["accepted", "bonus", "residual", "correction", "target", "draft"]
# A piece of text: the string of a token, or the hex codes of its bytes if they are not UTF-8 alone.
Piece = str | list[str]


@dataclass
class Header:
    """The first record: everything needed to repeat the run, and to read the others.

    model:   the target: ModelSpec.record() and `fingerprint` (hash of config and weights); with draft heads also
             `head_fingerprints`: the same of each head that the method reads, by kind
    lanes:   role -> the same for further models ("draft": ...), with `dtype` if it is another one than the target's,
             and `shared_tokens` if its tokenizer is another one: how many tokens both have
    method:  kind -> {"name": ..., knob: value, ...}; a chain of samplers has "stages": [...]
    parts:   kind -> the part's description of itself (`engine/trace/records/parts.py`)
    tellings: name of an acceptance rule -> its description of itself; a fork also has that of the run before it
    exactness: "lossless", "exact_for_settings", "lossy" or "unknown", as `engine/core/exactness.py` defines them
    reference:  whether a reference with a full cache ran, which is not part of the run's measurements. If `lanes` has the role
             "whole", it is that model's: the original of the target, or the target itself
    prompt:  int32 [n] token ids
    pieces:  token id (as text) -> its piece, for the tokens of the prompt
    parent:  {"run": id, "step": k} if this run was branched off, or None
    fork:    if this run repeated another one up to a step and then continued differently: `of` (its id), `step` (the first that
             differs), `name`, `change` (settings, as requested), `forced` ([[node, accepted], ...] of that step), and `base`:
             `method`, `parts`, `seed`, `max_new_tokens` and `fork` of that other run, `models`: role -> what its header said of
             a draft model, or of the target's heads, before others took their place. The header's own fields hold from that
             step on
    kernels: the kernels of the passes: "torch", or "rows" (on a CPU) or "triton" (on CUDA, or interpreted on a CPU), which give
             a row the same result for any number of rows
    chat:    whether the model's chat template made the prompt, of a user's turn or of messages
    turn:    that turn, or the messages as JSON, before the template; "" if there is none, or it was not recorded
    prompt_kind: how the prompt was given: "text", "marks" (text whose special tokens count), "messages" (as JSON) or "ids"
    forced:  whether verdicts were forced in the run; the text then follows no distribution
    machine: the measured profile of the target's device (HardwareProfile.record()), or None if there was none
    pass_us: role -> rows -> microseconds: passes of that model as measured before the run with these kernels and threads
    tells:   kind of part -> name -> note: the signals that the parts of the method record in each step
    details: name -> the meaning of the details of that name: words, formulas and outcomes, as the strategy or router declares
             them
    reports: role -> findings of each transform of the model's weights, in order; None: none, or not kept
    loaded:  the part of the prompt that came from a file and that no pass read: `entries`, its `bytes`, `bits` of a number,
             `sha256`
    batch:   how many prompts `decodescope batch` decoded together, of which this run's is one; None: it ran by itself
    """

    kind: ClassVar[str] = "header"
    model: dict[str, Any]
    method: dict[str, Any]
    prompt: np.ndarray
    seed: int
    schema: str = SCHEMA
    project: str = ""
    run: str = ""
    created: str = ""
    lanes: dict[str, Any] = field(default_factory=dict)
    exactness: Exactness = "unknown"
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 1
    kernels: str = "torch"
    torch: str = ""
    levels: list[str] = field(default_factory=lambda: ["summary"])
    max_new_tokens: int = 0
    stop_tokens: list[int] = field(default_factory=list)
    stop_texts: list[str] = field(default_factory=list)
    chat: bool = False
    turn: str = ""
    prompt_kind: PromptKind = "text"
    forced: bool = False
    tellings: dict[str, Telling] = field(default_factory=dict)
    pieces: dict[str, Piece] = field(default_factory=dict)
    parent: dict[str, Any] | None = None
    fork: dict[str, Any] | None = None
    machine: dict[str, Any] | None = None
    pass_us: dict[str, Any] = field(default_factory=dict)
    tells: dict[str, dict[str, Note]] = field(default_factory=dict)
    details: dict[str, Form] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)
    loaded: dict[str, Any] | None = None
    reference: bool = False
    reports: dict[str, list[Made]] | None = None
    batch: int | None = None

    @property
    def reference_kind(self) -> Along:
        """Who read along, as `reference` of a run asks for it."""
        return "model" if self.reference and WHOLE in self.lanes else self.reference

    def dtype_of(self, role: str) -> str:
        """The type of the numbers of the model in this role."""
        return str(self.lanes.get(role, {}).get("dtype") or self.dtype)

    @property
    def lossless(self) -> bool:
        """True if the text is that of plain decoding of the original model, greedily or in distribution."""
        return self.exactness == "lossless"

    @property
    def is_exact(self) -> bool:
        """True if runs with these settings have one distribution."""
        return self.lossless or self.exactness == "exact_for_settings"

    @property
    def device_text(self) -> str:
        """Type, device and threads, in words."""
        return f"{self.dtype} on {self.device}, {self.threads} thread{'' if self.threads == 1 else 's'}"


@dataclass
class DraftTree:
    """The proposed tree. Siblings are in draw order; a parent comes before its children.

    proposal: "onehot", "iid", "without_replacement" or "mixed": how the nodes were drawn
    q:       per node, the probability it had when it was drawn, given the siblings drawn before it; 1 if one-hot
    u:       per node, the uniform that drew it; None: chosen without chance
    source:  what proposed it, as the drafter calls it; notes: further figures by name (matched span, template, ...)
    passengers: auxiliary nodes, ascending: they were in the pass but could not be accepted, and do not count as drafted
    """

    tokens: list[int]
    parents: list[int]
    q: list[float]
    proposal: str = "onehot"
    u: list[float | None] | None = None
    source: str = ""
    notes: dict[str, Any] | None = None
    passengers: list[int] | None = None


@dataclass
class Trials:
    """The acceptance tests of one step, as columns, in the order in which they were made.

    p: the target's probability of the node's token in the sampling distribution, after the sampler: 1 or 0 under a greedy one
    (`Tops` then has the model distribution, before the sampler); r: what was left of it after earlier siblings were rejected;
    q: the proposal's; u: the uniform (None: no draw was needed); threshold: what u had to stay below, or the rule's own bound
    num, den: the numbers that decided: ok is exactly `u * den < num`, in doubles, or, without a draw, `den < num`. A num that
              is not
    recorded is r, a den that is not recorded q; without a draw and a den ok is `0 < num`
    ok: the verdict; a rule may also accept for another reason that it describes (`also`)
    """

    node: list[int]
    p: list[float]
    r: list[float]
    q: list[float]
    u: list[float | None]
    threshold: list[float]
    ok: list[bool]
    num: list[float | None] | None = None
    den: list[float | None] | None = None


@dataclass
class Extra:
    """The token that the target added after the accepted path. It has probability high - low in the distribution that it was
    drawn from, and `low <= u < high`; u is None when it was chosen without chance."""

    token: int
    origin: Origin
    u: float | None = None
    low: float = 0.0
    high: float = 1.0


TOP = 5  # tokens of each distribution that tops list at least, the likeliest ones, where there are so many


@dataclass
class Tops:
    """The most likely tokens at each visited place, for people and for the residual's picture.

    places: int32 [P]; -1 the root, else the node reached
    ids:    int32 [P, K]; the union of the top tokens of p and q and of the tokens tried; -1 pads
    p, q:   float32 [P, K]; p under a greedy sampler of the model distribution, before the sampler, else of the sampling
            distribution, after it; q is 0 where nothing was proposed by chance
    rest:   float32 [P, 3]; over all other tokens the sums of p, q and max(0, p - q)
    entropy: float32 [P]; of the distribution of p here, in nats: under a greedy sampler not the one of p in `Trials`
    """

    places: np.ndarray
    ids: np.ndarray
    p: np.ndarray
    q: np.ndarray
    rest: np.ndarray
    entropy: np.ndarray


@dataclass
class CacheChange:
    """What happened to one lane's KV cache in a step.

    appended:    tokens committed beyond the furthest so far; held: entries of the KV head that holds most afterwards
    lacks:       by layer, the number of tokens without an entry, if layers differ; below 0: it got entries of that many more
                 tokens that had waited
    absent:      int32 [A, 3] (layer, first position, the one behind the last) of committed tokens without an entry there, if
                 layers differ;  filled: the same of tokens that had waited, and whose entries the layer now has
    by_head:     int32 [L, H_kv] entries of each layer and KV head afterwards, if they differ
    held_bytes:  bytes of all storages (keys, values, positions, columns); full_bytes: those that keeping every entry
                 would need
    peak_bytes:  maximum size of its storages so far, if that has grown: entries that move exist twice for a moment
    head_bytes:  int64 [L, H_kv] bytes of each layer and KV head, including its part of what heads share, if heads differ
    evicted_count: entries that left the KV head that lost most;  evicted_all: int32 [E] positions that left every head
    evicted:     int32 [E, 3] (layer, KV head, position), if layers or heads differ
    merged:      int32 [M, 4] (layer, KV head, position, other position): the evicted entry, and the entry that it was merged
                 into, -1 if it was dropped
    merged_by:   float32 [M, 2] (similarity, weight) of each of them
    scores:      the scores of entries, if the policy ranks them and there is one text (level "full")
    plan:        the policy's plan for each KV head, in the step in which it was settled;  notes: what it recorded of the step
    mass:        uint8 [L, H_kv, n] share of accumulated attention by original position, if a policy keeps it and the map has at
                 most 16,384 numbers (level "decisions") or 1,048,576 ("full"); 0 if evicted, else 1 + 254 * sqrt(mass / largest
                 of the layer)
    thinned_mass: the same of a larger map, in as many numbers: the heaviest entries one by one, the others in blocks
    shared:      int32 [N, 4] (node before it or -1, first position, the one behind the last, texts that read it) of texts that
                 share entries; shared_bytes: the additional size of separate caches for all texts
    reference:      what the reference run found, if the header has `reference`
    read:        uint8 [L, H_kv, n], if its last pass did not read all: 1 for entries that it has read or written; recorded
                 within the same limits as `mass`, and left out above
    packed:      what KV compression packed;  kept_packed: if it packs, bytes of the entries that are held, packed ones as
                 packed
    augmented:   entries in addition to those of the text, from here on; only `held_bytes` counts them
    freed:       for each text that ended in the step, in order, the places of the entries that were freed with it, ascending:
                 those that no other text reads
    """

    lane: str
    appended: int
    held: int
    held_bytes: int
    full_bytes: int
    evicted_count: int = 0
    evicted_all: np.ndarray | None = None
    evicted: np.ndarray | None = None
    mass: np.ndarray | None = None
    packed: Packed | None = None
    kept_packed: int | None = None
    by_head: np.ndarray | None = None
    peak_bytes: int | None = None
    head_bytes: np.ndarray | None = None
    merged: np.ndarray | None = None
    merged_by: np.ndarray | None = None
    notes: dict[str, Any] | None = None
    read: np.ndarray | None = None
    shared: np.ndarray | None = None
    shared_bytes: int | None = None
    reference: ReferenceRecord | None = None
    augmented: list[Augmented] | None = None
    scores: Scores | None = None
    plan: Plan | None = None
    lacks: list[int] | None = None
    freed: list[list[int]] | None = None
    thinned_mass: ThinnedMass | None = None
    absent: np.ndarray | None = None
    filled: np.ndarray | None = None

    def kept_bytes(self, read: int) -> int:
        """Bytes of the entries that are held, counted as `full_bytes` counts those of all `read` tokens, or as packed."""
        if self.kept_packed is not None:
            return self.kept_packed
        if self.by_head is None:
            return self.full_bytes * self.held // read - (self.shared_bytes or 0) if read else 0
        return self.full_bytes * int(self.by_head.sum()) // (read * self.by_head.size) if read else 0


@dataclass
class Fields:
    """Level "full": attention and residual stream, for the rows that were committed.

    layers: of the requested layers (all, if none were named) as many, from the first on, as fit into 524,288 weights
    attention: float16 [L', H_kv, g, R, n], softmax weights of `layers` over what was held when the rows were committed
    positions: int32 [L', H_kv, n] original positions; padded with -1 if layers hold different numbers
    hidden_norm: float32 [L + 1, R]; the norm of the residual stream entering each layer, and after the final norm; NaN: the
            pass did not reach it
    logits: float32 [N + 1, V] of the step's target pass, before the sampler: after the root, then after each drafted node
    laws:   float32 [M, V]; the distributions that the drafted nodes were drawn from; law_of: int32 [N], the row of each, -1:
            without chance. These three are recorded only if they have at most 262,144 numbers together
    """

    layers: list[int] | None = None
    attention: np.ndarray | None = None
    positions: np.ndarray | None = None
    hidden_norm: np.ndarray | None = None
    logits: np.ndarray | None = None
    laws: np.ndarray | None = None
    law_of: np.ndarray | None = None


@dataclass
class Prefill:
    """The prompt was read. n: tokens now in the target's cache; cut: what of it was read, None: all of it."""

    kind: ClassVar[str] = "prefill"
    n: int
    passes: list[Pass] = field(default_factory=list)
    cache: list[CacheChange] = field(default_factory=list)
    wall_us: float = 0.0
    cut: Cut | None = None


@dataclass
class Step:
    """One round of a strategy.

    step: from 0; n: committed tokens before it, prompt included; t_us: its beginning, from the start of the run
    emitted: ids that this step added to the text; origins: one per id
    drafted: nodes proposed, without auxiliary nodes; accepted: how many of them were emitted
    path:  accepted nodes from the root down (those emitted)
    draft_us, verify_us, commit_us, policy_us: durations by phase; wall_us: the whole step
    draft_tops: the draft's own distribution at each tried place, if a model or a head made one; None: not recorded
    notes: what the strategy recorded of the step, if it drafts nothing
    details: what the strategy or router recorded in addition to the tokens, in a shape that every view draws; the header
             declares them
    looks: what was computed from distributions or states to decide, in addition to the passes; it has a cost
    choices: for each emitted token its candidates, if guidance chose, or, without a `path`, the strategy itself, which takes
             the best; law: what the guidance recorded of the step
    rule:  what the acceptance rule adds so that its verdict can be re-derived, by the names of its `Telling`
    sampler: the sampler's state before the step (mu, ...), if it has one to show; for a chain also the result of each stage on
            the step's first distribution
    pieces: id (as text) -> piece, for ids that the trace shows for the first time
    forced: nodes whose verdict was set beforehand, not tested; accepted or rejected, as the trials say
    environment: the reaction to other programs on this machine, after the step; not part of the content hash
    tie:   positions (in the step) at which the two best logits were closer than the tie bound, with their difference
    """

    kind: ClassVar[str] = "step"
    step: int
    n: int
    t_us: float
    wall_us: float
    emitted: list[int]
    origins: list[str]
    drafted: int = 0
    accepted: int = 0
    draft_us: float = 0.0
    verify_us: float = 0.0
    commit_us: float = 0.0
    policy_us: float = 0.0
    passes: list[Pass] = field(default_factory=list)
    cache: list[CacheChange] = field(default_factory=list)
    path: list[int] | None = None
    draft: DraftTree | None = None
    trials: Trials | None = None
    extra: Extra | None = None
    tops: Tops | None = None
    draft_tops: DraftTops | None = None
    rule: dict[str, Any] | None = None
    sampler: dict[str, Any] | None = None
    exits: list[Exit] | None = None
    details: list[Detail] | None = None
    looks: list[Look] | None = None
    notes: dict[str, Any] | None = None
    choices: list[Choice] | None = None
    law: dict[str, Any] | None = None
    fields: Fields | None = None
    pieces: dict[str, Piece] | None = None
    tie: list[list[float]] | None = None
    forced: list[int] | None = None
    environment: Environment | None = None

    def detail(self, name: str) -> Any:
        """The first detail of that name; None if the step has none."""
        return next((one for one in self.details or () if one.name == name), None)

    def detail_of(self, shape: str) -> Any:
        """The first detail of that shape; None if the step has none."""
        return next((one for one in self.details or () if one.shape == shape), None)


@dataclass
class End:
    """The last record of a sealed trace.

    reason: why the run ended; message: one sentence, if it was not the normal end
    notes: a sentence on each part of the method that had no effect in the run, and why
    violations: sentences on what the finished text breaks of what its run was held to, such as a schema; None: nothing
    tokens: ids of the whole final text, without the prompt (for example the best of a beam search)
    records: number of records before this one; sha256: of all their bodies in order (hex)
    content_hash: the same over the records without times, so that equal runs have equal hashes
    """

    kind: ClassVar[str] = "end"
    reason: EndReason
    tokens: list[int]
    steps: int
    message: str = ""
    records: int = 0
    sha256: str = ""
    content_hash: str = ""
    wall_us: float = 0.0
    notes: list[str] = field(default_factory=list)
    violations: list[str] | None = None

    @property
    def remarks(self) -> list[str]:
        """What a reader should know of the run: violations, then notes."""
        return [*(self.violations or []), *self.notes]


Record = Header | Prefill | Step | End
