"""The figures of a measurement, computed from its results."""
