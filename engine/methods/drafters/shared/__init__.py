"""What several drafters use: trees, n-grams, bodies of text, growth on a model. No method stands here."""
