"""Words, colours and number formats that all views share."""
