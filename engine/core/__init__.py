"""What everything else is told in: knobs, parts and their registry, a model's shape, what passes are asked for. No torch."""
