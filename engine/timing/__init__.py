"""How long passes take on this machine: measured peaks, the verify-cost curve, a pass as a line in its rows."""
