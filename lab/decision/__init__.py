"""Explain one decision: what was tested, with which numbers, and the residual distribution."""
