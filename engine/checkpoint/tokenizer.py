"""The place of the tokenizer in version 0.1: scripts from then import it here. New code imports it from its home."""

from decodescope.engine.model.checkpoint.tokenizer import Tokenizer as Tokenizer
