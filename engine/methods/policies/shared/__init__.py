"""What several policies use: what the end of a prompt looks at. No policy stands here."""
