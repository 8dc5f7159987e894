"""What a part has to keep: toy models, contracts for each kind of part, and the exact law by counting all ways of chance.

The tests of the project use it, and so can the author of a part of one's own.
It may import the engine, and knows no lab and no app.
"""
