"""How the shipped models were made: corpus, tasks, nets, objectives and recipes. Not in the wheel."""
