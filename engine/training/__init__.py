"""Training of draft heads on a frozen model: nets to begin with, readings, losses, measurements, and the loop."""
