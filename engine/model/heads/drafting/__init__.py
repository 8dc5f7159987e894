"""The nets of draft heads, one file each."""
