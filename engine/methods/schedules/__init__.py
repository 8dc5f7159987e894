"""Schedules: how many tokens a drafter writes before the target checks; one file each."""
