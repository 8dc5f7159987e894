"""The command `bench`, one measurement a file."""
