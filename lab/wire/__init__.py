"""From records to the messages that views draw."""
