"""GGUF files, the format of llama.cpp: one file holds a model's settings, its tokenizer and its weights."""
