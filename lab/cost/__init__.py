"""Recorded passes under the cost model, here and on other machines."""
