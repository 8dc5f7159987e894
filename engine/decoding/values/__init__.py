"""Values that the parts of a step exchange: chance, a draft and its verdict, records of a prompt and a pass."""
