"""Values of a record: their limits, what numbers and JSON must be, formulas, grammars and programs as text."""
