"""What every room of the app may use: limits, places on disk, refusals and the command line's grammar."""
