"""The HTTP routes of the page, one file per tab."""
