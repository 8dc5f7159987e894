"""DecodeScope: see how fast LLM decoding works, step by step, on real models."""

__version__ = "0.2.0"
