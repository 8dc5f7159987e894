"""What readers open: the scope, comparisons, exported files."""
