"""The command `app`: open the lab in the browser."""

from __future__ import annotations

import argparse
import gc
import getpass
import sys
from dataclasses import fields

from decodescope.app.basis.limits import LabLimits
from decodescope.app.commands.shared.run import further_models
from decodescope.app.http.access_options import AccessOptions, ServeError
from decodescope.app.http.users import LONGEST, add_user, check_name
from decodescope.app.runs.placed_key import Placement
from decodescope.engine.core.paths import expand_path


def app(args: argparse.Namespace) -> int:
    """Serve until it is stopped."""
    if args.add_user is not None:
        return _add_user(args)
    gc.disable()  # until the page is built nearly all objects stay; then `serve` collects
    try:
        _serve(args)
    finally:
        gc.enable()
    return 0


def _serve(args: argparse.Namespace) -> None:
    from .server import serve

    names = further_models(args)
    model = args.model or first_model()
    serve(
        model=model,
        draft=names.pop("draft", "lab-draft" if model == "lab" else None),
        further=names,
        host=args.host,
        port=args.port,
        data=args.data,
        open_browser=not args.no_browser,
        access=AccessOptions(
            allow_host=args.allow_host,
            root_path=args.root_path,
            require_token=args.require_token,
            users=args.users,
            user_header=args.user_header,
            proxies=tuple(x for given in args.proxy for x in given.split(",")),
            secure=args.secure,
        ),
        models=args.models,
        threads=args.threads,
        place=Placement(args.dtype or "", args.device or ""),
        allow_get=args.allow_get,
        limits=LabLimits(**{x.name: getattr(args, x.name) for x in fields(LabLimits)}),
    )


def _add_user(args: argparse.Namespace) -> int:
    """Write a name and its password into the file of users."""
    if args.users is None:
        raise ServeError("--add-user NAME needs --users FILE: the file that the name is written into.")
    path = expand_path(args.users)
    check_name(args.add_user)
    if sys.stdin.isatty():
        password = getpass.getpass(f"Password for {args.add_user}: ")
        if password != getpass.getpass("The same once more: "):
            raise ServeError("The two passwords differ: nothing was written.")
    else:
        password = sys.stdin.readline(LONGEST + 2).rstrip("\r\n")
    there = add_user(path, args.add_user, password)
    print(f"{args.add_user} {'has a new password' if there else 'can sign in'}, by {path}.")
    return 0


def first_model() -> str:
    """The model that a page begins with if none is named: the first one that was fetched, else lab."""
    from decodescope.engine.model.fetched.catalogue import fetchable_models, is_fetched

    return next((x.name for x in fetchable_models() if is_fetched(x)), "lab")
