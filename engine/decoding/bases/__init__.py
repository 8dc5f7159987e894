"""The base of every family of methods, and what those are given: lane, context, state."""
