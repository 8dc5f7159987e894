"""GGUF files as models: their header, their tensors, and the folder that is derived from one."""
