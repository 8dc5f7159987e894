"""Methods that take turns against the clock."""
