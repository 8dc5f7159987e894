"""Draft heads: small nets trained on a frozen target, from which a drafter reads its guesses; one file each."""
