"""Calibration: values of knobs chosen for a risk, with a guarantee."""
