"""Words: spans, normal forms, content words, short answers, and grading an answer."""
