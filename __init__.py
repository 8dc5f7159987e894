"""DecodeScope: see how fast LLM decoding works, step by step, on real models."""
