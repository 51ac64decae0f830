"""From names in a schema to ordinary English: words, plurals, articles, ordinals, values."""

from __future__ import annotations

import re

_ABBREVIATIONS = {
    "abbrev": "abbreviation", "addr": "address", "amt": "amount", "avg": "average",
    "bldg": "building", "cust": "customer", "dept": "department", "desc": "description",
    "dest": "destination", "dob": "date of birth", "emp": "employee", "fname": "first name",
    "gpa": "GPA", "gdp": "GDP", "gnp": "GNP", "indep": "independence", "lname": "last name",
    "max": "maximum", "min": "minimum", "mgr": "manager", "num": "number", "pct": "percentage",
    "prod": "product", "qty": "quantity", "stu": "student", "tel": "telephone", "yr": "year",
    "cred": "credits", "tot": "total", "hr": "hour", "url": "URL", "hs": "high school",
    "lng": "longitude", "lat": "latitude", "mpg": "MPG", "ssn": "SSN", "isbn": "ISBN",
    "fullname": "full name", "firstname": "first name", "lastname": "last name",
    "surname": "surname", "zipcode": "zip code", "hiredate": "hire date",
}  # fmt: skip
_IRREGULAR = {
    "person": "people", "man": "men", "woman": "women", "child": "children", "foot": "feet",
    "mouse": "mice", "goose": "geese", "tooth": "teeth", "medium": "media", "datum": "data",
    "hero": "heroes", "superhero": "superheroes", "potato": "potatoes", "echo": "echoes",
    "criterion": "criteria", "phenomenon": "phenomena", "analysis": "analyses", "crisis": "crises",
    "thesis": "theses", "basis": "bases", "diagnosis": "diagnoses", "index": "indexes",
    "shelf": "shelves", "life": "lives", "wife": "wives", "leaf": "leaves", "half": "halves",
    "knife": "knives", "wolf": "wolves", "quiz": "quizzes", "bus": "buses", "gas": "gases",
    "campus": "campuses", "status": "statuses", "virus": "viruses", "bonus": "bonuses",
    "process": "processes", "address": "addresses", "class": "classes", "alias": "aliases",
    "staff": "staff members", "cattle": "cattle", "series": "series", "species": "species",
    "aircraft": "aircraft", "sheep": "sheep", "furniture": "pieces of furniture",
    "driver's license": "driver's licenses", "passer-by": "passers-by", "louse": "lice",
    "movie": "movies", "cookie": "cookies", "calorie": "calories", "pie": "pies", "tie": "ties",
    "lens": "lenses", "canvas": "canvases", "atlas": "atlases", "menu": "menus",
}  # fmt: skip
_SINGULAR = {plural: singular for singular, plural in _IRREGULAR.items()}
_SINGULAR |= {"staff": "staff member", "furniture": "piece of furniture"}
_ENDS_IN_S = re.compile(r"(ss|us|is|as|os)$")
_SMALL = "zero one two three four five six seven eight nine ten".split()


def split_name(name: str) -> list[str]:
    """The words of an identifier, lower-cased where it is no abbreviation.

    >>> split_name("eye_colour_id"), split_name("SurfaceArea"), split_name("Home Town")
    (['eye', 'colour', 'id'], ['surface', 'area'], ['home', 'town'])
    """
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    text = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", text)
    text = text.replace("%", " percentage ").replace("#", " number ").replace("'", "")
    words = re.findall(r"[^\W_]+", text)
    if len(words) > 1 and any(word.isdigit() for word in words[1:]):
        words = _glue_numbers(words)
    return [_ABBREVIATIONS.get(word.lower(), word.lower()) for word in words]


def _glue_numbers(words: list[str]) -> list[str]:
    """`address line 1` stays three words, `Q 1` becomes one."""
    glued: list[str] = []
    for word in words:
        if word.isdigit() and glued and len(glued[-1]) == 1:
            glued[-1] += word
        else:
            glued.append(word)
    return glued


def phrase(name: str) -> str:
    """An identifier as words between blanks, a word told twice in a row told once."""
    words = split_name(name)
    kept = [word for i, word in enumerate(words) if i == 0 or word != words[i - 1]]
    return " ".join(kept)


def plural(noun: str) -> str:
    """The plural of a noun phrase; of "number of X" and its like the head is made plural.

    >>> plural("city"), plural("superhero"), plural("date of birth"), plural("staff")
    ('cities', 'superheroes', 'dates of birth', 'staff members')
    """
    for joint in (" of ", " in ", " for ", " with ", " per ", " at ", " on "):
        if joint in noun:
            head, _, rest = noun.partition(joint)
            return plural(head) + joint + rest
    *before, last = noun.split(" ")
    return " ".join([*before, _plural_word(last)])


def _plural_word(word: str) -> str:
    low = word.lower()
    if low in _IRREGULAR:
        return _IRREGULAR[low]
    if low in _SINGULAR or low.isdigit():
        return word
    if word.isupper() and len(word) > 1:
        return word + "s"
    if re.search(r"(s|x|z|ch|sh)$", low):
        return word if low.endswith("s") and not _ENDS_IN_S.search(low) else word + "es"
    if re.search(r"[^aeiou]y$", low):
        return word[:-1] + "ies"
    return word + "s"


def singular(noun: str) -> str:
    """The singular of a noun phrase that may be plural already.

    >>> singular("countries"), singular("class"), singular("heroes"), singular("gas stations")
    ('country', 'class', 'hero', 'gas station')
    """
    *before, last = noun.split(" ")
    low = last.lower()
    if low in _SINGULAR:
        last = _SINGULAR[low]
    elif low in _IRREGULAR or _ENDS_IN_S.search(low) or not low.endswith("s") or len(low) < 4:
        pass
    elif low.endswith("ies"):
        last = last[:-3] + "y"
    elif (
        re.search(r"(ss|x|z|ch|sh)es$", low) or low.endswith("ses") and _ENDS_IN_S.search(low[:-2])
    ):
        last = last[:-2]
    else:
        last = last[:-1]
    return " ".join([*before, last])


def article(noun: str) -> str:
    """The noun with "a" or "an".

    >>> article("hour"), article("university"), article("eye colour"), article("MPG")
    ('an hour', 'a university', 'an eye colour', 'an MPG')
    """
    word = noun.split(" ")[0]
    if word.isupper() and len(word) > 1:
        vowel = word[0] in "AEFHILMNORSX"
    else:
        low = word.lower()
        vowel = low[:1] in "aeiou" and not re.match(r"(uni|use|usa|eu|one|ur[aeiou])", low)
        vowel = vowel or bool(re.match(r"(hour|honest|honou?r|heir)", low))
    return f"{'an' if vowel else 'a'} {noun}"


def ordinal(number: int) -> str:
    """second, third, … in words up to tenth, then 11th.

    >>> ordinal(2), ordinal(11), ordinal(23)
    ('second', '11th', '23rd')
    """
    small = "zeroth first second third fourth fifth sixth seventh eighth ninth tenth".split()
    if number < len(small):
        return small[number]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(
        number % 10, "th"
    )  # fmt: skip
    return f"{number}{ending}"


def spelled(number: int) -> str:
    """Small numbers in words, others in digits."""
    return _SMALL[number] if 0 <= number < len(_SMALL) else str(number)


def capital(sentence: str) -> str:
    """The sentence with its first letter large; names that begin it keep their spelling."""
    return sentence[:1].upper() + sentence[1:]


_PLAIN_VALUE = re.compile(r"[A-Z0-9][\w.&'-]*(?: (?:[A-Z0-9][\w.&'-]*|of|and|the))*")


def value_text(value: object) -> str:
    """A stored value as a question says it: exactly as stored, in quotes unless a plain name.

    >>> value_text("New York"), value_text("red"), value_text(7), value_text(2.50)
    ('New York', '"red"', '7', '2.5')
    """
    if isinstance(value, float):
        return f"{value:g}" if value == float(f"{value:g}") else repr(value)
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if _PLAIN_VALUE.fullmatch(text) and len(text) > 2 and text[0].isupper() and text != "NULL":
        return text
    mark = "'" if '"' in text else '"'
    return f"{mark}{text}{mark}"


def join_and(items: list[str], word: str = "and") -> str:
    """a, b and c."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {word} {items[-1]}"
