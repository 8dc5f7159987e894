"""The page itself: layout, controls, theme."""
