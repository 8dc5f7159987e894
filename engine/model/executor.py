"""The place of the executor in version 0.1: scripts from then import its fault here. New code imports it from its home."""

from .forward.executor import EngineFault as EngineFault
