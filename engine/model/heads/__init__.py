"""Draft heads: small nets trained on a frozen target, of which a drafter reads its guesses; one file each."""
