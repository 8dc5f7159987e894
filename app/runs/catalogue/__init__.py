"""What there is to choose from: parts, knobs, presets and recorded examples."""
