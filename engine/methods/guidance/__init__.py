"""Routers: which of two models writes, by the token or by the answer; one file each."""
