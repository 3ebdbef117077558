"""Is an answer a refusal: "I don't know" or the like, in one of the eight most spoken languages?

English in detail; of Chinese, Hindi, Spanish, Arabic, French, Bengali and Portuguese the common ways to say it.
"""

import regex

# Small letters where more may follow: "I Don't Know How to Love Him" is a title.
ENGLISH = r"""
    (?:i|we)\s+(?:really\s+|honestly\s+|just\s+)?(?-i:do\s+not|don['’]?t)\s+(?-i:know|have|remember|recall)
  | (?:(?:i|we)\s+)?(?:do\s+not|don['’]?t)\s+know(?:\s+(?:this|that|it|the\s+answer))?\W*$
  | i(?:\s+a|['’])m\s+(?:not\s+(?:\w+\s+)?(?:sure|certain|able|aware)|unable|unsure|sorry)
  | i\s+(?-i:can(?:not|['’]?t)|could(?:\s+not|n['’]t)|have\s+no\s+idea)
  | (?:no\s+one|nobody)\s+(?:really\s+)?knows
  | there(?:\s+is|['’]s)\s+(?:no|not\s+enough|insufficient)\s+(?:answer|information|data|evidence|way)
  | (?:it|that|this)(?:\s+is|['’]s)\s+(?:not\s+(?:\w+\s+)?(?:known|clear|possible)|unknown|unclear|impossible)
  | (?:the\s+answer\s+is\s+)?(?:n/?a|none|idk|unknown|unsure|sorry|not\s+(?:known|sure|available)|no\s+idea)\W*$
  | sorry,
"""
# What may follow "no sé" in a refusal: the end, a comma, or what is not known.
SPANISH_END = r"(?=\W*$|\s*[,.;:!]|\s+(?-i:la\s+respuesta|qui[eé]n|qu[eé]|cu[aá]l|cu[aá]ndo|c[oó]mo|d[oó]nde|si)\b)"
FRENCH_END = r"(?=\W*$|\s*[,.;:!]|\s+(?-i:la\s+r[eé]ponse|qui|quel|quelle|quand|comment|où|ce\s+que|si)\b)"
PORTUGUESE_END = r"(?=\W*$|\s*[,.;:!]|\s+(?-i:a\s+resposta|quem|qual|quando|como|onde|o\s+que|se)\b)"
OTHER_LANGUAGES = {
    "Chinese": r"""
        [我咱]们?(?:真的)?(?:不|並不|并不)(?:知道|清楚|确定|確定|太清楚|了解|记得|記得)
      | [我咱]们?(?:无法|無法|不能|没有|沒有)(?:回答|确定|確定|提供|相关|相關|足够|足夠|答案)
      | (?:不知道|不清楚|不确定|不確定|未知|无从得知|無從得知|没有答案|沒有答案)\W*$""",
    "Hindi": r"""
        (?:मुझे|हमें)\s+(?:\S+\s+){0,3}?(?:नहीं\s+(?:पता|मालूम|ज्ञात|याद)|(?:पता|मालूम|ज्ञात|याद)\s+नहीं)
      | (?:मैं|हम)\s+(?:\S+\s+){0,3}?नहीं\s+(?:जानता|जानती|जानते|बता)
      | (?:पता\s+नहीं|मालूम\s+नहीं|नहीं\s+पता|नहीं\s+मालूम|अज्ञात|ज्ञात\s+नहीं)\W*$""",
    "Spanish": rf"""
        (?:yo\s+)?no\s+(?:lo\s+)?s[eé]{SPANISH_END}
      | (?:yo\s+)?no\s+(?:estoy\s+segur[oa]|tengo\s+(?:ni\s+)?(?:la\s+menor\s+)?idea|puedo\s+responder|recuerdo)
          {SPANISH_END}
      | (?:lo\s+)?desconozco{SPANISH_END}
      | (?:se\s+)?desconoc(?:e|ido)\W*$""",
    "Arabic": r"""
        (?:أنا\s+|انا\s+)?لا\s+[أا](?:عرف|علم|دري|تذكر|ستطيع)
      | (?:أنا\s+|انا\s+)?لست\s+(?:متأكد|متاكد|أعرف|اعرف|أعلم)
      | ليس(?:ت)?\s+لد[يى]\s+(?:أي\s+|اي\s+)?(?:فكرة|معلومات|إجابة|اجابة|جواب)
      | (?:غير\s+معروفة?|مجهول|لا\s+فكرة)\W*$""",
    "French": rf"""
        je\s+(?:ne\s+|n['’]\s*en\s+)?(?:le\s+)?sais\s+(?:vraiment\s+)?pas{FRENCH_END}
      | j['’]ignore{FRENCH_END}
      | je\s+(?:ne\s+)?(?:connais\s+pas|suis\s+pas\s+s[ûu]re?|me\s+souviens\s+pas|peux\s+pas\s+r[eé]pondre)\b
      | je\s+n['’]ai\s+(?:pas\s+(?:la\s+r[eé]ponse|d['’]id[eé]e|d['’]informations?)|aucune\s+id[eé]e)\b
      | (?:aucune\s+id[eé]e|inconnue?)\W*$""",
    "Bengali": r"""
        (?:আমি|আমরা)\s+(?:\S+\s+){0,3}?(?:জানি\s*না|নিশ্চিত\s+(?:নই|না)|মনে\s+নেই|বলতে\s+পারছি\s+না)
      | আমার\s+(?:\S+\s+){0,3}?(?:জানা\s+নেই|মনে\s+নেই)
      | (?:জানি\s*না|জানা\s+নেই|অজানা)\W*$""",
    "Portuguese": rf"""
        (?:eu\s+)?n[ãa]o\s+(?:o\s+)?sei{PORTUGUESE_END}
      | (?:eu\s+)?n[ãa]o\s+(?:tenho\s+(?:certeza|id[eé]ia|a\s+resposta)|fa[çc]o\s+(?:a\s+menor\s+)?id[eé]ia
          |(?:me\s+)?lembro|posso\s+responder){PORTUGUESE_END}
      | desconhe[çc]o{PORTUGUESE_END}
      | desconhecid[oa]\W*$""",
}
SORRY = (
    r"sorry|unfortunately|i['’]?m\s+sorry|as\s+an\s+ai\b[^,]*"
    r"|很?抱歉|对不起|對不起|不好意思|माफ\w*\s+(?:कीजिए|करें|कीजिएगा)|क्षमा\s+करें|खेद\s+है|lo\s+siento|perd[oó]n[ae]?|disculp[ae]n?"
    r"|lamentablemente|desafortunadamente|عذر[اًا]*|آسف\w*|للأسف|أعتذر|d[eé]sol[eé]e?|je\s+suis\s+d[eé]sol[eé]e?"
    r"|malheureusement|দুঃখিত|আমি\s+দুঃখিত|ক্ষমা\s+করবেন|desculp[ae]m?|sinto\s+muito|infelizmente|lamento"
)
BUT = r"\b(?:pero|mais|mas)\b|但是?|\b(?:लेकिन|मगर|و?لكن\w*|কিন্তু)\b"
REFUSAL = regex.compile(
    rf"""\W*(?:(?:{SORRY})\W*(?:(?:\bbut\b|{BUT})\W*)?)*+
    (?:{"|".join([ENGLISH, *OTHER_LANGUAGES.values()])})
    |\W*(?:{SORRY})\W*$""",
    regex.IGNORECASE | regex.VERBOSE,
)
# "I'm not sure, but it might be Helsinki" is an answer after all; "I'm sorry, but I cannot say" is not.
ANSWERS_AFTER_ALL = regex.compile(
    r"\bbut\s+(?!(?:i|we|there|unfortunately|as)\b(?!\s+(?:think|believe|guess|suppose|would)\b))\w", regex.IGNORECASE
)
OTHER_BUT = regex.compile(BUT, regex.IGNORECASE)


def is_refusal(answer: str) -> bool:
    """Whether an answer says that it gives none."""
    if not REFUSAL.match(answer):
        return False
    but = OTHER_BUT.search(answer)
    after_all = but is not None and not REFUSAL.match(answer, but.end())
    return not after_all and not ANSWERS_AFTER_ALL.search(answer)
