"""Is an answer right, wrong or a refusal?"""

import json
import sys
import unicodedata
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anchorscope.questions.normalize import mostly_english
from anchorscope.text.content_words import WORD
from anchorscope.text.grading import label
from anchorscope.text.normal_words import LATIN_LETTERS, Span, bare_words, compared_words, normal_words, texts
from anchorscope.text.normal_words import NORMAL_WORD as ANY_WORD
from anchorscope.text.refusals import is_refusal
from anchorscope.text.short_answer import short_answer
from small_things import ROOT

GRADES = [json.loads(line) for line in (ROOT / "tests/cases/grades.jsonl").read_text(encoding="utf-8").splitlines()]
# Words, marks and scripts that the rules look at, in any order.
PIECES = """the The a A an and or not in of Mr Sir New II Paris Ali Muhammad Jane Austen 5 -5 5.5 10,000 ½ four yes No
million ( ) , . ' ’ - – % $ é Łódź ß İ 東京 หนู हिन्दी ʼ ٥ ℃ July 4 film U.S. "x" I don't know""".split()
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=12).flatmap(
    lambda parts: st.sampled_from(["", " "]).map(lambda glue: glue.join(parts))
)

EACH = settings(max_examples=200, deadline=None, derandomize=True, database=None)


@pytest.mark.parametrize("kind", sorted({row["kind"] for row in GRADES}))
def test_a_hand_written_answer_is_graded_as_its_writer_did(kind):
    rows = [row for row in GRADES if row["kind"] == kind]
    wrongly = [row for row in rows if label(row["answer"], row["gold"], row["question"]).right is not row["right"]]
    assert wrongly == []


@EACH
@given(TEXTS, st.lists(TEXTS, max_size=3), TEXTS)
@example("ʼ", ["ʼ"], "")
@example("℃", ["c"], "℃")
@example("½½555", ["1/2"], "½")
def test_any_answer_gets_a_label(answer, gold, question):
    found = label(answer, gold, question)
    assert (found.right is None) == (found.exact is None)
    if found.exact:
        assert bare_words(answer[found.exact.start : found.exact.end]) or "ʼ" in answer


@EACH
@given(TEXTS, TEXTS, TEXTS)
def test_a_label_does_not_hang_on_how_accents_are_stored(answer, gold, question):
    composed, taken_apart = (
        label(unicodedata.normalize(form, answer), [unicodedata.normalize(form, gold)], question).right
        for form in ("NFC", "NFD")
    )
    assert composed is taken_apart


@EACH
@given(TEXTS)
def test_an_answer_that_is_an_accepted_one_is_right(text):
    if bare_words(text):
        assert label(text, [text]).right is True


NUMBERS = st.integers(0, 10**7) | st.decimals(0, 10**4, places=2)


@EACH
@given(NUMBERS, st.sampled_from(["{}", "It is {}.", "{} metres", "about {}", "In all {}, as far as we know"]))
def test_a_sign_or_a_decimal_changes_the_grade(number, sentence):
    assert label(sentence.format(number), [str(number)]).right is True
    for changed in (
        f"-{number}",
        f"−{number}",
        f"minus {number}",
        f"{number}.5" if "." not in str(number) else f"{number}7",
    ):
        assert label(sentence.format(changed), [str(number)]).right is False
        assert label(sentence.format(number), [changed]).right is False
        assert label(sentence.format(changed), [changed]).right is True


@EACH
@given(st.integers(1000, 10**12))
def test_separators_of_thousands_change_nothing(number):
    written = [f"{number:,}", *(f"{number:,}".replace(",", mark) for mark in "'\u202f\u00a0")]
    for one, other in product([str(number), *written], repeat=2):
        assert label(one, [other]).right is True


@EACH
@given(st.integers(0, 999_999))
def test_a_number_in_words_is_the_number_in_digits(number):
    assert texts(in_words(number)) == (str(number),)


SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen""".split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(number: int) -> str:
    """A number as the English say it: "two hundred thousand and five"."""
    if number >= 1000:
        rest = number % 1000
        joint = " and " if 0 < rest < 100 else " "
        return f"{in_words(number // 1000)} thousand{joint}{in_words(rest) if rest else ''}".strip()
    if number >= 100:
        return f"{SMALL[number // 100]} hundred" + (f" and {in_words(number % 100)}" if number % 100 else "")
    if number >= 20:
        return TENS[number // 10] + (f"-{SMALL[number % 10]}" if number % 10 else "")
    return SMALL[number]


@EACH
@given(st.text(alphabet=[chr(code) for code in range(128)], max_size=40))
def test_a_text_without_digits_has_the_same_words_by_the_fast_pattern(text):
    folded = text.lower()
    if not any(char.isdigit() for char in folded):
        assert [match[0] for match in LATIN_LETTERS.finditer(folded)] == [
            match[0] for match in ANY_WORD.finditer(folded)
        ]


@pytest.mark.parametrize(
    "text",
    ["हिन्दी", "ภาษาไทย", "বাংলা", "தமிழ்", "မြန်မာ", "ខ្មែរ", "עִבְרִית", "العَرَبِيَّة", "می‌خواهم", "e\u0301te\u0301", "がく"],
)
def test_a_word_with_combining_marks_is_one_word(text):
    assert [word.group() for word in WORD.finditer(f"{text} {text}")] == [text, text]
    (first, span), (second, _) = normal_words(f"{text} {text}")
    assert first == second
    assert (span.start, span.end) == (0, len(text))


@pytest.mark.parametrize(("one", "other"), [("दल", "दिल"), ("หน", "หนู"), ("か", "が"), ("ঢাক", "ঢাকা")])
def test_a_vowel_sign_or_voicing_tells_words_apart(one, other):
    assert bare_words(one) != bare_words(other)


@pytest.mark.parametrize(
    "answer",
    [
        *("I don't know", "Sorry, I don't know.", "I'm sorry, but I cannot say."),
        *("我不知道", "我不知道。", "抱歉，我不知道这个问题的答案", "对不起，我无法回答", "不知道", "我不確定"),
        *("मुझे नहीं पता", "मुझे यह नहीं पता।", "मैं नहीं जानता", "पता नहीं", "माफ़ कीजिए, मुझे नहीं पता"),
        *("No sé", "No lo sé.", "no se", "Lo siento, pero no lo sé.", "No sé quién fue", "No tengo ni idea"),
        *("لا أعرف", "لا اعرف", "عذراً، لا أعرف الإجابة", "لا أدري", "لست متأكدا"),
        *("Je ne sais pas", "je sais pas", "Désolé, je ne sais pas qui c'était", "Aucune idée", "J’ignore."),
        *("আমি জানি না", "আমি এটা জানি না।", "দুঃখিত, আমি জানি না", "আমার জানা নেই"),
        *("Não sei", "Eu não sei.", "Desculpe, não sei a resposta", "nao sei", "Não faço ideia"),
        *("", " ... ", "?"),
    ],
)
def test_i_dont_know_in_eight_languages_is_a_refusal(answer):
    assert label(answer, ["Paris"]).refused


@pytest.mark.parametrize(
    "answer",
    [
        *("A", "a", "The The", "The", "An", "the a"),
        *("No Sé Tú", "Não Sei Dançar", "No sé por qué te quiero", "Inconnu à cette adresse", "Perdón Mexico"),
        *(
            "No sé, pero creo que es Madrid",
            "我不知道，但我认为是北京",
            "Je ne sais pas, mais je crois que c'est Paris",
        ),
        *("I Don't Know How to Love Him", "Sorry Seems to Be the Hardest Word", "Unknown Pleasures"),
    ],
)
def test_what_only_looks_like_a_refusal_is_an_answer(answer):
    assert not is_refusal(answer)
    assert label(answer, ["zzz"]).right is False


LISTS = [
    *("Mick Jagger and Keith Richards", "Mick Jagger & Keith Richards", "Mick Jagger, Keith Richards and Brian Jones"),
    *("Mick Jagger, Keith Richards, and Brian Jones", "Mick Jagger, Keith Richards, Brian Jones"),
    *(
        "Mick Jagger, Keith Richards",
        "John, Paul, George and Ringo",
        "Michael Philip Jagger Senior, Keith Richards and Ann Lee",
    ),
    *("copper and zinc", "hydrogen, oxygen and carbon", "cloves, star anise and black pepper", "rain, snow, sleet"),
]
SENTENCES = [
    *(
        "{}",
        " {}",
        "{}.",
        '"{}"',
        "It was {}.",
        "The answer is {}.",
        "I think it was {}.",
        "They are {} (both of them).",
    ),
    *("It was written by {}.", "It was made by {} – in London", "{} and", "{}, and others", "{}, etc."),
    *("The answer: {}", "{}. They were all there.", "It is {} because it says so."),
]


@pytest.mark.parametrize("listed", LISTS)
def test_a_list_is_one_short_answer_in_every_sentence(listed):
    found = {}
    for sentence in SENTENCES:
        answer = sentence.format(listed)
        span = short_answer(answer)
        found[sentence] = answer[span.start : span.end]
    assert found == dict.fromkeys(SENTENCES, listed)


@pytest.mark.parametrize(
    "answer", ["Oslo, the capital of Norway", "Oslo, which is large", "Oslo, I believe", "Oslo or Rome"]
)
def test_what_follows_a_comma_is_a_list_only_where_it_is_more_of_the_same(answer):
    span = short_answer(answer)
    assert answer[span.start : span.end] == "Oslo"


@pytest.mark.parametrize("category", ["So", "Nl", "No"])
def test_a_symbol_that_is_read_as_a_word_is_an_answer(category):
    """Such as "Ⓞ", for a blood type."""
    symbols = [char for char in map(chr, range(sys.maxunicode)) if unicodedata.category(char) == category]
    words = [char for char in symbols if bare_words(char)]
    assert words
    for char in words:
        verdict = label(char, [char], "which is it?")
        assert (verdict.right, verdict.exact) == (True, Span(0, 1)), char


@EACH
@given(TEXTS)
def test_compared_words_point_back_at_the_text(text):
    for word in compared_words(text):
        assert 0 <= word.span.start < word.span.end <= len(text)


@pytest.mark.parametrize("name", ["popqa", "triviaqa", "hotpotqa", "nq"])
def test_bundled_questions_are_english(name):
    lines = (ROOT / f"workflow/resources/questions/{name}-mini.jsonl").read_text(encoding="utf-8").splitlines()
    assert mostly_english(json.loads(line)["question"] for line in lines)


@pytest.mark.parametrize(
    "questions",
    [
        ["Was ist die Hauptstadt von Frankreich?", "Wer schrieb den Faust?", "In welcher Stadt liegt der Dom?"],
        ["¿Quién escribió Don Quijote?", "¿Cuál es la capital de Francia?", "¿En qué año murió?"],
        ["Quelle est la capitale de la France ?", "Qui a écrit Les Misérables ?", "Où est né Mozart ?"],
        ["Wat is de hoofdstad van Nederland?", "Wie schreef dit boek?", "Waar is hij geboren?"],
        ["法国的首都是哪里？", "谁写了红楼梦？"],
        ["भारत की राजधानी क्या है?", "रामायण किसने लिखी?"],
        ["Care este capitala Franței?", "Cine are dreptate?"],
        ["Who wrote Faust?", "Wer schrieb den Faust?", "Qui a écrit Faust ?"],
    ],
)
def test_other_languages_are_not_taken_for_english(questions):
    assert not mostly_english(questions)
