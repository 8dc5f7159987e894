"""Pending run: a run with models that are loaded when its turn comes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from decodescope.app.basis.refusal import explain_error
from decodescope.engine.core.roles import TARGET

from .composition import RunChoice
from .placed_key import split_key

if TYPE_CHECKING:
    from decodescope.engine.session.compatibility import ModelInfo
    from decodescope.engine.session.method import Method
    from decodescope.engine.session.session import Session
    from decodescope.engine.trace.records.events import End, EndReason, Header, Step


def pending_header(
    run: str, choice: RunChoice, method: Method, names: Mapping[str, str], readers: Mapping[str, ModelInfo]
) -> Header:
    """The header of a run before its models (role -> key) are loaded, with the fields that are known by then.
    It contains nothing about the weights. For a model that is not on this machine yet it contains only the key."""
    from decodescope.engine.decoding.record.recorder import Recorder
    from decodescope.engine.session.header import method_fields
    from decodescope.engine.session.load import requested_changes
    from decodescope.engine.session.run import encode_source
    from decodescope.engine.trace.query.causes import causes_of
    from decodescope.engine.trace.records.events import Header

    target = readers.get(TARGET)
    splits, source = None if target is None else target.tokenizer, choice.source
    prompt = [] if target is None or splits is None else encode_source(target, source)
    known = {role: reader.spec.record() for role, reader in readers.items()}
    bare = {role: split_key(key)[0] for role, key in names.items()}
    models = {role: known.get(role) or {"name": key, **requested_changes(key)} for role, key in bare.items()}
    header = Header(
        **method_fields(
            method, run, prompt, Recorder(choice.record_level, None if splits is None else splits.piece)
        ),
        model=models.pop(TARGET),
        lanes=models,
        seed=choice.seed,
        max_new_tokens=choice.max_new,
        chat=source.is_templated,
        turn=source.turn,
        prompt_kind=source.kind,
        reference=bool(choice.reference),
    )
    header.exactness = causes_of(header).exactness
    return header


class PendingRun:
    """Work for the runner's worker, which treats it as a session.
    The first step creates the real session; all steps are that session's.

    session: None until it is created;  halted: as a session's
    make: loads the models and creates the session; if it refuses, the run ends
    ended: called with the End of a run that never became a session
    """

    def __init__(self, make: Callable[[], Session], ended: Callable[[End], None]):
        self.run_id = secrets.token_hex(8)
        self.session: Session | None = None
        self.halted: Callable[[], bool] | None = None
        self._make, self._ended = make, ended
        self._end: End | None = None

    @property
    def end(self) -> End | None:
        """The last record, once there is one."""
        return self._end if self.session is None else self.session.end

    @property
    def reading(self) -> Any:
        """The progress of the prefill, as in a session."""
        return None if self.session is None else self.session.reading

    def step(self) -> Step:
        """One step. Raises Stopped if the models cannot be loaded, or the run was stopped meanwhile."""
        from decodescope.engine.session.session import SessionStopped

        if self.session is None:
            try:
                session = self._make()
            except (ValueError, OSError) as error:
                self.finish("bad_input", explain_error(error))
                raise SessionStopped from None
            session.run_id, session.halted = self.run_id, self.halted
            self.session = session
            if self.halted is not None and self.halted():
                self.finish("stopped_by_user")
                raise SessionStopped
        return self.session.step()

    def finish(self, reason: EndReason, message: str = "") -> End:
        """End the run."""
        from decodescope.engine.trace.records.events import End

        if self.session is not None:
            return self.session.finish(reason, message)
        if self._end is None:
            self._end = End(reason, [], 0, message)
            self._ended(self._end)
        return self._end

    def branch(self) -> Session:
        """As a session's. Raises RuntimeError before there is one."""
        if self.session is None:
            raise RuntimeError("the run has not begun, so it has no branches.")
        return self.session.branch()
