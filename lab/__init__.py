"""The lab: views of traces, for page and notebook. Nothing here imports torch."""
