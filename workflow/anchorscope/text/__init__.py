"""Words: spans, normal forms, content words, short answers, and the grading of answers."""
