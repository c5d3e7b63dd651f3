"""Training text that models make: translations of monolingual text, and a teacher's translations for its student."""
