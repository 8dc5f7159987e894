"""lazy: a property that is worked out once for each object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):
    """`functools.cached_property` without its lock.

    Before Python 3.12 it takes a lock, which takes longer than most of what steps compute.
    """

    def __init__(self, work: Callable[[Any], T]):
        self._work = work
        self._name = ""
        self.__doc__ = work.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, one: None, owner: type) -> lazy[T]: ...

    @overload
    def __get__(self, one: object, owner: type) -> T: ...

    def __get__(self, one: object | None, owner: type) -> lazy[T] | T:
        if one is None:
            return self
        value = one.__dict__[self._name] = self._work(one)
        return value
