"""What several datasets share: examples with the same question or the same subject, directly or over others."""

from collections.abc import Sequence

from anchorscope.text.normal_words import bare_words


def joint_clusters(questions: Sequence[str], clusters: Sequence[str]) -> list[str]:
    """The cluster of each example among all: that of the first example which it shares a question or a cluster with.

    Both are compared by their normalised words. Who shares something with an example also shares what that one does.
    """
    earlier = list(range(len(clusters)))  # of each example, one before it that it belongs with; itself, if it is first
    known: dict[tuple[str, str], int] = {}

    def first(number: int) -> int:
        while earlier[number] != number:
            earlier[number] = earlier[earlier[number]]  # a shorter way for the next time
            number = earlier[number]
        return number

    for number, (question, cluster) in enumerate(zip(questions, clusters, strict=True)):
        for key in (("question", _normal(question)), ("cluster", _normal(cluster))):
            one, other = sorted((first(number), first(known.setdefault(key, number))))
            earlier[other] = one
    return [clusters[first(number)] for number in range(len(clusters))]


def _normal(text: str) -> str:
    """Its normalised words; a text without any, such as the name of a band, in lower case."""
    return " ".join(bare_words(text)) or text.strip().casefold()
