"""A model that writes pictures: what its config says of them, and which outputs are no pictures."""

from __future__ import annotations

from typing import Any

import pytest
from checkpoints import CONFIG, made

from decodescope.engine.core.spec import PictureSpec
from decodescope.engine.cost.passes import spec_of
from decodescope.engine.model.checkpoint.config import spec_from_config
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.session.load import load
from decodescope.engine.trace.values.limits import TraceError

RASTER = {"height": 2, "width": 3, "levels": [4, 5, 6]}
ANY = {**RASTER, "cells": [10, 11, 12, 13, 14, 15]}


def test_a_config_says_what_shape_a_picture_has_and_which_ids_are_grey_levels(tmp_path) -> None:
    spec = load(made(tmp_path / "m", picture=ANY), device="cpu").spec
    assert spec.picture == PictureSpec(2, 3, (4, 5, 6), (10, 11, 12, 13, 14, 15)) and spec.picture.size == 6
    assert spec_of(spec.record()) == spec, "a trace carries it"
    raster, plain = spec_from_config({**CONFIG, "picture": RASTER}, "m"), spec_from_config(CONFIG, "m")
    assert raster.picture == PictureSpec(2, 3, (4, 5, 6)) and spec_of(raster.record()) == raster
    assert plain.picture is None and "picture" not in plain.record(), "headers stay as they were"


WRONG: dict[str, tuple[Any, str]] = {
    "no table": ([8, 8], r"picture as \[8, 8\]; it must hold height, width, levels"),
    "no levels": ({"height": 2, "width": 3}, "it must hold height, width, levels"),
    "another word": ({**RASTER, "colours": 3}, "it must hold height, width, levels, and may hold cells"),
    "half a side": ({**RASTER, "height": 2.5}, "picture's height as 2.5; it must be a whole number"),
    "truth as a side": ({**RASTER, "width": True}, "picture's width as True"),
    "levels of no list": ({**RASTER, "levels": "4567"}, "picture's levels as 4567; it must be a list of ids"),
    "cells of no ids": ({**RASTER, "cells": ["a"]}, r"picture's cells as \['a'\]"),
    "no side": ({**RASTER, "height": 0}, "0 x 3 cells; each side must be from 1 to 256"),
    "a side too long": ({**RASTER, "width": 257}, "2 x 257 cells"),
    "one level": ({**RASTER, "levels": [4]}, "1 grey levels; there must be 2 or more"),
    "a cell too few": ({**ANY, "cells": [10, 11]}, "2 instructions for 6 cells"),
    "an id twice": ({**ANY, "levels": [4, 5, 10]}, "one id for two levels or cells"),
    "an id beyond": ({**RASTER, "levels": [4, 40]}, "the id 40; it must be below 40"),
    "an id below": ({**RASTER, "levels": [4, -1]}, "the id -1; it must be below 40"),
}


@pytest.mark.parametrize(("said", "match"), WRONG.values(), ids=WRONG)
def test_what_is_no_picture_is_refused_in_a_sentence(said: Any, match: str) -> None:
    with pytest.raises(LoadError, match=match) as error:
        spec_from_config({**CONFIG, "picture": said}, "m")
    text = str(error.value)
    assert text.startswith("m: config.json gives") and text.endswith(".") and "\n" not in text


def test_a_record_whose_picture_is_none_is_no_models_shape() -> None:
    record = spec_from_config({**CONFIG, "picture": ANY}, "m").record()
    with pytest.raises(TraceError, match=r"2 instructions for 6 cells; .* open an intact copy"):
        spec_of({**record, "picture": {**record["picture"], "cells": [10, 11]}})
