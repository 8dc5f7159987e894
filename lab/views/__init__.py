"""What a reader opens: the scope, comparisons, exported files."""
