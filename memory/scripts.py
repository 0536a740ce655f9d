"""Characters by how they are written, as insides of regular-expression classes, for text that is folded."""

from __future__ import annotations

import unicodedata
from itertools import groupby


def _marks() -> str:
    """List all combining marks as ranges: a class of single characters would be searched one by one."""
    codes = (code for code in range(0x300, 0x20000) if unicodedata.category(chr(code)).startswith("M"))
    ranges = (list(group) for _, group in groupby(enumerate(codes), lambda pair: pair[1] - pair[0]))
    return "".join(f"{chr(found[0][1])}-{chr(found[-1][1])}" for found in ranges)


MARKS = _marks()
"""Combining marks of every script. `\\w` leaves them out, yet most words of India are torn without them."""

HAN = "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"

_KANA = "\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\U0001aff0-\U0001b16f"
_HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff"
_BOPOMOFO = "\u3105-\u312f\u31a0-\u31bf"

CJK = HAN + _KANA + _HANGUL + _BOPOMOFO
"""Chinese, Japanese and Korean: short words, found by characters and pairs."""

_THAI = "\u0e01-\u0e3a\u0e40-\u0e4e"
_LAO = "\u0e81-\u0ecf\u0edc-\u0edf"
_MYANMAR = "\u1000-\u103f\u1050-\u109f\ua9e0-\ua9fe\uaa60-\uaa7f"
_KHMER = "\u1780-\u17d3\u17d7\u17dc\u17dd"

UNSPACED = _THAI + _LAO + _MYANMAR + _KHMER
"""Alphabets written without spaces, found by trigrams."""

PICTOGRAPHS = "\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001f3fa\U0001f400-\U0001faff"
"""Emoji and their like, each a word by itself; skin tones are left out."""
