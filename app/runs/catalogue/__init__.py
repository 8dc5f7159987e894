"""The available choices: parts, knobs, presets and recorded examples."""
