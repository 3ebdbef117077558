"""Texts of questions and aliases as every stage sees them, whatever file they came from."""


def tidy(text: str) -> str:
    """Collapse white space; undo the doubled quotes that a careless CSV export leaves behind."""
    text = " ".join(text.split())
    if len(text) > 1 and text[0] == text[-1] == '"' and '""' in text:
        text = text[1:-1].replace('""', '"')
    return text.replace('""', '"').strip()
